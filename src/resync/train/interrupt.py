"""Interruption, such as at the end of a job's time: signals that ask a run to stop, and the joint stop of processes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from resync.engine.transport import Transport
from resync.processes.signals import handled


class Interrupted(Exception):
    """The run was asked to stop; every process raises it after the same step, with a checkpoint on disk."""


class Interruption:
    """Whether this process, or any process of the run, has been asked to stop."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    @classmethod
    @contextmanager
    def awaited(cls) -> Iterator["Interruption"]:
        """Record the signals `STOP` during the block, instead of ending this process."""
        interruption = cls()
        with handled(interruption._remember):
            yield interruption

    def agreed(self, transport: Transport) -> bool:
        """Whether any process has received a signal; the answer is the same on every process. Collective."""
        asked = torch.tensor(int(self.received is not None), device=transport.clocks.device)
        return bool(transport.sum_(asked))

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
