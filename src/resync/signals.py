"""Signals between a scheduler, the launcher of a run and its processes."""

import ctypes
import os
import signal

STOP = (signal.SIGTERM, signal.SIGUSR1)
"""With these a scheduler announces the end of a job's time, or that another job takes its place."""

_PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals) -> None:
    """Let the kernel send this process `number` when the process that started it ends, however that ends."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it was already too late
        os.kill(os.getpid(), number)
