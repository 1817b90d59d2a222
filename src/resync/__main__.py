"""`python -m resync` is the command `resync`."""

import sys

from resync.cli import main

sys.exit(main())
