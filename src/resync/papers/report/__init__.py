"""The site of a scale: its papers, runs and audit on pages that link to one another."""

from resync.papers.report.links import broken_links
from resync.papers.report.site import report, write_index

__all__ = ["broken_links", "report", "write_index"]
