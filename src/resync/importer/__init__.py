"""Third-party logs, as the files of a finished run: collect, figures and audit take them like our own."""

from resync.importer.formats import import_log

__all__ = ["import_log"]
