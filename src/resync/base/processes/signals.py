"""Signals between a scheduler, the launcher of a run, and the run's processes."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], object]

STOP = (signal.SIGTERM, signal.SIGUSR1)
"""The signals by which a scheduler announces a job's time limit or its preemption."""

INTERRUPTED = 128 + signal.SIGINT
"""The exit code after Ctrl-C."""

_SAID = b"\nresync: interrupted: training stops with a checkpoint; another Ctrl-C ends it at once\n"
PARENT = "RESYNC_PARENT"
"""The environment variable that tells a rank, which takes seconds to start, the process that has started it."""
_PR_SET_PDEATHSIG = 1


@contextmanager
def handled(handler: Handler | signal.Handlers) -> Iterator[None]:
    """Within the block, the signals `STOP` call `handler`, or end this process with SIG_DFL."""
    before = {number: signal.signal(number, handler) for number in STOP}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


@contextmanager
def first_interrupt_handled(handler: Handler, then: Handler | signal.Handlers) -> Iterator[None]:
    """Within the block, the first Ctrl-C says so and calls `handler`, and further ones are handled by `then`."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, then)
        os.write(2, _SAID)  # not print, which may be what was interrupted
        handler(number, frame)

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_with_parent(number: signal.Signals) -> None:
    """Let the kernel send signal `number` to this process when its parent ends, however that happens."""
    parent = int(os.environ.get(PARENT) or os.getppid())
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # the parent had already ended
        os.kill(os.getpid(), number)
