from resync.formulas.topology import *  # noqa: F403
