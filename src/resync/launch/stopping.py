"""Forwarding of the signals that ask a run to stop, from the launcher to its processes."""

import multiprocessing
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from resync.processes.signals import INTERRUPTED, end_with_parent, first_interrupt_handled, handled

ASKED = "RESYNC_STOP"
"""The environment variable that tells processes started after the signal about it."""


def stop_asked() -> bool:
    """Whether the launcher of this process has received one of the signals."""
    return ASKED in os.environ


def stop_code() -> int:
    """The exit code of a run that was asked to stop: 75, or 130 after Ctrl-C."""
    return INTERRUPTED if os.environ.get(ASKED) == signal.SIGINT.name else os.EX_TEMPFAIL


@contextmanager
def remembered() -> Iterator[None]:
    """Within the block, a signal that asked to stop is remembered, and after it no more."""
    try:
        yield
    finally:
        os.environ.pop(ASKED, None)


@contextmanager
def passing_on(send: Callable[[], None]) -> Iterator[None]:
    """Within the block, the signals `STOP` and the first Ctrl-C call `send` instead of ending this process."""

    def handle(number: int, frame: FrameType | None) -> None:
        if stop_code() != INTERRUPTED:
            os.environ[ASKED] = signal.Signals(number).name
        send()

    with handled(handle), first_interrupt_handled(handle, then=signal.default_int_handler):
        yield


def terminate_children() -> None:
    """Send SIGTERM to every process that multiprocessing has started from this one."""
    for child in multiprocessing.active_children():
        child.terminate()


def ended(command: list[str], environment: dict[str, str], stop: signal.Signals) -> int:
    """Run `command` and forward the signals `STOP` and the first Ctrl-C as `stop`.

    Returns its exit code, or if it was asked to stop and has not ended well, `stop_code`: DeepSpeed's launcher has no
    code of its own for that.

    The command ends with this process, however this one ends. Signals other than `stop` are meant for the processes
    that the command starts.
    """
    assert threading.current_thread() is threading.main_thread()

    def in_child() -> None:
        end_with_parent(signal.SIGTERM)
        if stop != signal.SIGUSR1:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    with (
        # In its own session it receives signals only from here, not those sent to this process's group as well.
        subprocess.Popen(command, env=environment, preexec_fn=in_child, start_new_session=True) as process,
        passing_on(lambda: process.send_signal(stop)),
    ):
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            raise
        if code and stop_asked():
            return stop_code()
    return code if code >= 0 else 128 - code
