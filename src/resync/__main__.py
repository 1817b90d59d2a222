"""`python -m resync` is the command `resync`, run in a fork of a warm process if there is one."""

import sys

from resync.base.processes import warm_client

code = warm_client.delegate(sys.argv[1:])
if code is None:
    from resync.tools import cli

    code = cli.main()
sys.exit(code)
