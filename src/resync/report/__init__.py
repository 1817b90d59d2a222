"""One page of a scale: figures, tables, claims, the audit in short, and where the results come from."""

from resync.report.page import report

__all__ = ["report"]
