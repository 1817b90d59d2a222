"""What asks the warm process for a fork. Whoever starts `python -m resync` imports it, so it imports little."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from resync.base.processes.signals import INTERRUPTED, STOP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

ADDRESS = "RESYNC_WARM"
"""The environment variable with the path of the process's socket."""
KILLED = "resync: error: the job was killed\n"


def limited() -> bool:
    """Whether this process belongs to a Slurm job, whose limits a fork of another process would not have, or is a rank.

    A rank ends with its launcher, whose child a fork of another process would not be.
    """
    return "SLURM_JOB_ID" in os.environ or "RANK" in os.environ


def connected() -> socket.socket | None:
    """A connection to the warm process, which makes a fork for it; None if there is none for this process."""
    path = os.environ.get(ADDRESS)
    if not path or limited():
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):  # it is on another machine or has ended
        connection.close()
        return None
    return connection


def ask(
    connection: socket.socket, arguments: Sequence[str], streams: Sequence[int], environment: Mapping[str, str],
    stays: bool = False,
) -> None:  # fmt: skip
    """Let the fork run `resync <arguments>` in this working directory, with these standard streams.

    One that `stays` gets no signals, and may be asked again when it has answered with 0.
    """
    socket.send_fds(connection, [b"\n"], list(streams))
    request = {"arguments": [*arguments], "directory": os.getcwd(), "environment": dict(environment), "stays": stays}
    connection.sendall(json.dumps(request).encode() + b"\n")


def answer(connection: socket.socket) -> str:
    """The line with the exit code of the fork, when it has ended; empty if it was killed."""
    try:
        return connection.makefile().readline()
    except ConnectionResetError:
        return ""


def delegate(arguments: list[str]) -> int | None:
    """Run `resync <arguments>` in a fork of the warm process; return its exit code, or None if there is none.

    The fork has this process's working directory, environment and standard streams, receives the signals `STOP`, and
    gets SIGTERM when this process or the warm one ends. If it is killed, the exit code is 1. After Ctrl-C, which a
    terminal sends to the fork too, this process waits for its end, but not after a second one.
    """
    if arguments[:1] in ([], ["run"]) or (connection := connected()) is None:
        return None
    with connection:
        ask(connection, arguments, [0, 1, 2], os.environ)
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
            ended = answer(connection)
        except KeyboardInterrupt:
            return INTERRUPTED
    if not ended and not interrupted:
        sys.stderr.write(KILLED)
    code = int(ended or 1)
    return INTERRUPTED if interrupted and code else code
