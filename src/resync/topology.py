"""The public names of `resync.formulas.topology`, with its help."""

from resync.formulas.topology import *  # noqa: F403
from resync.formulas.topology import __all__ as __all__
from resync.formulas.topology import __doc__ as __doc__
