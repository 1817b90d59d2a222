from resync.formulas.averaging import *  # noqa: F403
