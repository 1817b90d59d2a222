"""The public names of `resync.formulas.averaging`, with its help."""

from resync.formulas.averaging import *  # noqa: F403
from resync.formulas.averaging import __all__ as __all__
from resync.formulas.averaging import __doc__ as __doc__
