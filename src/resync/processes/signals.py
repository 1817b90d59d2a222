"""Signals between a scheduler, the launcher of a run, and the run's processes."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP = (signal.SIGTERM, signal.SIGUSR1)
"""The signals by which a scheduler announces a job's time limit or its preemption."""

_PR_SET_PDEATHSIG = 1


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    """Within the block, the signals `STOP` call `handler`, or end this process with SIG_DFL."""
    before = {number: signal.signal(number, handler) for number in STOP}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def end_with_parent(number: signal.Signals) -> None:
    """Let the kernel send signal `number` to this process when its parent ends, however that happens."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # the parent had already ended
        os.kill(os.getpid(), number)
