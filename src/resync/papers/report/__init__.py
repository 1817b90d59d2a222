"""The site of a scale: its papers, runs and audit on pages that link to one another."""

from resync.papers.report.site import report

__all__ = ["report"]
