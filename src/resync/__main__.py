"""`python -m resync` is the command `resync`, in a fork of a warm process where there is one."""

import sys

from resync.processes import warm

code = warm.delegate(sys.argv[1:])
if code is None:
    from resync import cli

    code = cli.main()
sys.exit(code)
