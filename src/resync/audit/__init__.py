"""Published numbers against reproduced ones, with one verdict and one reason each."""

from resync.audit.audit import Audit, audit

__all__ = ["Audit", "audit"]
