"""Signals between a scheduler, the launcher of a run and its processes."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP = (signal.SIGTERM, signal.SIGUSR1)
"""With these a scheduler announces the end of a job's time, or that another job takes its place."""

_PR_SET_PDEATHSIG = 1


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Within the block, the signals `STOP` do not end this process but call `handler`."""
    before = {number: signal.signal(number, handler) for number in STOP}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def end_with_parent(number: signal.Signals) -> None:
    """Let the kernel send this process `number` when the process that started it ends, however that ends."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it was already too late
        os.kill(os.getpid(), number)
