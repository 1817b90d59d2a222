"""What asks the warm process for a fork: every job starts it, so it imports little."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from resync.processes.forked_verbs import IMPORTS
from resync.processes.signals import INTERRUPTED, STOP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ADDRESS = "RESYNC_WARM"
"""The environment variable with the path of the process's socket."""


def limited() -> bool:
    """Whether this process belongs to a Slurm job, whose limits a fork of another process would not have."""
    return "SLURM_JOB_ID" in os.environ


def delegate(arguments: list[str]) -> int | None:
    """Run `resync <arguments>` in a fork of the warm process; return its exit code, or None if there is none.

    The fork has this process's working directory, environment and standard streams, receives the signals `STOP`, and
    ends with this process. It also ends, after a SIGTERM, when the warm process is killed; the exit code is then 1.
    After Ctrl-C, which a terminal sends to the fork too, this process waits for its end, but not after a second one.
    """
    path = os.environ.get(ADDRESS)
    if not path or limited() or not arguments or arguments[0] not in IMPORTS:
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            with short_path(path) as short:
                connection.connect(short)
        except (FileNotFoundError, ConnectionRefusedError):
            return None  # it is on another machine or has ended
        request = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
        text = json.dumps(request).encode() + b"\n"
        socket.send_fds(connection, [text[:1]], [0, 1, 2])
        connection.sendall(text[1:])

        interrupted = False

        def pass_on(number: int, frame: FrameType | None) -> None:
            with suppress(BrokenPipeError):  # the job has just ended
                connection.sendall(bytes([number]))

        def interrupt(number: int, frame: FrameType | None) -> None:
            nonlocal interrupted
            if interrupted:
                raise KeyboardInterrupt
            interrupted = True
            # To a fork that has got Ctrl-C as well, another one would be the second.
            pass_on(signal.SIGTERM, frame)

        for number in STOP:
            signal.signal(number, pass_on)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, interrupt)
        try:
            answer = connection.makefile().readline()
        except KeyboardInterrupt:
            return INTERRUPTED
    if not answer:
        print("resync: error: the warm process ended before the job did", file=sys.stderr)
        return 1
    return INTERRUPTED if interrupted and int(answer) else int(answer)


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """Another path of the same file for the length of the block; that of a socket may have at most 107 bytes."""
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
