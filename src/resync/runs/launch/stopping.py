"""Forwarding of the signals that ask a run to stop, from the launcher to its processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from resync.base.processes.exit_code import MISTAKE
from resync.base.processes.signals import INTERRUPTED, end_with_parent, first_interrupt_handled, handled
from resync.runs.run import Run

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


def signal_children(number: signal.Signals, of: int | None = None) -> bool:
    """Send a signal to the processes that the main thread of this process, or of another one, has started.

    Returns whether there are any.
    """
    of = of or os.getpid()
    with suppress(FileNotFoundError, ProcessLookupError):
        children = Path(f"/proc/{of}/task/{of}/children").read_text(encoding="utf-8").split()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), number)
        return bool(children)
    return False


@contextmanager
def passing_on(send: Callable[[], object] = lambda: signal_children(signal.SIGTERM)) -> Iterator[None]:
    """Within the block, the signals `STOP` and the first Ctrl-C call `send` instead of ending this process.

    A second Ctrl-C kills its children and raises KeyboardInterrupt.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if stop_code() != INTERRUPTED:
            os.environ[ASKED] = signal.Signals(number).name
        send()

    def at_once(number: int, frame: FrameType | None) -> None:
        signal_children(signal.SIGKILL)
        raise KeyboardInterrupt

    with handled(handle), first_interrupt_handled(handle, then=at_once):
        yield


def code_of_ranks(run: Run, failed: Mapping[int, int]) -> int:
    """The exit code of a run some of whose ranks have ended with these codes, other than 0; says which one failed."""
    if not failed or set(failed.values()) == {os.EX_TEMPFAIL}:
        return stop_code() if failed else os.EX_OK
    stopped = {os.EX_TEMPFAIL, -signal.SIGTERM, -signal.SIGUSR1}  # the signals: before it could handle them

    def blame(rank: int) -> tuple[bool, bool]:
        """One that was killed is the reason why another one fails; a launcher ends those that are left by SIGTERM."""
        return failed[rank] in stopped, failed[rank] >= 0

    rank = min(failed, key=blame)
    if failed[rank] == os.EX_TEMPFAIL or (stop_asked() and failed[rank] in stopped):
        return stop_code()
    killed = ", killed by somebody, or for lack of memory" if failed[rank] == -signal.SIGKILL else ""
    print(f"resync: error: {run.id}: rank {rank} ended with exit code {failed[rank]}{killed}", file=sys.stderr)
    return MISTAKE if failed[rank] == MISTAKE else 1


def ended(
    command: list[str],
    environment: dict[str, str],
    stop: Callable[[int], object],
    ignored: tuple[signal.Signals, ...] = (),
) -> int:
    """Run `command`; the signals `STOP` and the first Ctrl-C call `stop` with the number of its process.

    Returns its exit code, or if it was asked to stop and has not ended well, `stop_code`: DeepSpeed's launcher has no
    code of its own for that.

    The command ends with this process, however this one ends. `ignored` signals are meant for the processes that it
    starts.
    """
    assert threading.current_thread() is threading.main_thread()

    def in_child() -> None:
        end_with_parent(signal.SIGTERM)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    with (
        # In its own session it receives signals only from here, not those sent to this process's group as well.
        subprocess.Popen(command, env=environment, preexec_fn=in_child, start_new_session=True) as process,
        passing_on(lambda: stop(process.pid)),
    ):
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            raise
        if code and stop_asked():
            return stop_code()
    return code if code >= 0 else 128 - code
