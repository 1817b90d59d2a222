from resync.formulas.schedules import *  # noqa: F403
