"""The public names of `resync.formulas.mixing`, with its help."""

from resync.formulas.mixing import *  # noqa: F403
from resync.formulas.mixing import __all__ as __all__
from resync.formulas.mixing import __doc__ as __doc__
