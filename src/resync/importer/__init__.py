"""Logs that others wrote, as the files of a finished run: collect, figures and audit take them like our own."""

from resync.importer.importer import import_log

__all__ = ["import_log"]
