from resync.formulas.periods import *  # noqa: F403
