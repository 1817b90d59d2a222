from resync.formulas.mixing import *  # noqa: F403
