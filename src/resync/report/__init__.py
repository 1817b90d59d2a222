"""The page of a scale: figures, tables, claims, a summary of the audit, and the provenance of the results."""

from resync.report.page import report

__all__ = ["report"]
