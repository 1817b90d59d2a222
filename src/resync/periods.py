"""The public names of `resync.formulas.periods`, with its help."""

from resync.formulas.periods import *  # noqa: F403
from resync.formulas.periods import __all__ as __all__
from resync.formulas.periods import __doc__ as __doc__
