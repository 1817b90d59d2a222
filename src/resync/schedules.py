"""The public names of `resync.formulas.schedules`, with its help."""

from resync.formulas.schedules import *  # noqa: F403
from resync.formulas.schedules import __all__ as __all__
from resync.formulas.schedules import __doc__ as __doc__
