"""Import of third-party logs as the files of a finished run, which export, figures and audit show like any other."""

from resync.papers.importer.formats import import_log
from resync.papers.importer.runs_table import import_runs

__all__ = ["import_log", "import_runs"]
