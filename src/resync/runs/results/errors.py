"""Errors of whoever reads results."""

from resync.base.errors import UserError


class ResultsError(UserError):
    """Results that cannot be trusted; the message is one line with the run, the file and the problem."""


class MissingRun(ResultsError):
    """A run that has not finished: no summary.json, which is written last."""
