"""Interruption, such as at the end of a job's time: signals that ask a run to stop, and the joint stop of processes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch.distributed as dist

from resync.base.processes.signals import first_interrupt_handled, handled


class Interrupted(Exception):
    """The run was asked to stop; every process raises it after the same step, with a checkpoint on disk."""


class Interruption:
    """Whether this process has been asked to stop."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    @classmethod
    @contextmanager
    def await_signals(cls) -> Iterator["Interruption"]:
        """Record the signals `STOP` and the first Ctrl-C during the block, instead of ending this process."""
        interruption = cls()
        # torchrun passes on a Ctrl-C that the terminal has sent to its processes already, and kills them in the end.
        then = signal.SIG_IGN if dist.is_torchelastic_launched() else signal.default_int_handler
        with handled(interruption._remember), first_interrupt_handled(interruption._remember, then):
            yield interruption

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is not signal.SIGINT:
            self.received = signal.Signals(number)
