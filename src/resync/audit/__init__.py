"""Published numbers against reproduced ones, with one verdict and one reason each."""

from resync.audit.overview import gather
from resync.audit.page import write
from resync.audit.papers import audit
from resync.audit.rows import Audit

__all__ = ["Audit", "audit", "gather", "write"]
