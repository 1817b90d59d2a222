"""Interruption, such as at the end of a job's time: signals that ask a run to stop, and the joint stop of processes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from resync.processes.signals import handled


class Interrupted(Exception):
    """The run was asked to stop; every process raises it after the same step, with a checkpoint on disk."""


class Interruption:
    """Whether this process has been asked to stop."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    @classmethod
    @contextmanager
    def awaited(cls) -> Iterator["Interruption"]:
        """Record the signals `STOP` during the block, instead of ending this process."""
        interruption = cls()
        with handled(interruption._remember):
            yield interruption

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
