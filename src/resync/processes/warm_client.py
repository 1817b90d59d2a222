"""What asks the warm process for a fork: every job starts it, so it imports little."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from resync.processes.signals import INTERRUPTED, STOP

if TYPE_CHECKING:
    from types import FrameType

ADDRESS = "RESYNC_WARM"
"""The environment variable with the path of the process's socket."""


def limited() -> bool:
    """Whether this process belongs to a Slurm job, whose limits a fork of another process would not have, or is a rank.

    A rank ends with its launcher, whose child a fork of another process would not be.
    """
    return "SLURM_JOB_ID" in os.environ or "RANK" in os.environ


def delegate(arguments: list[str]) -> int | None:
    """Run `resync <arguments>` in a fork of the warm process; return its exit code, or None if there is none.

    The fork has this process's working directory, environment and standard streams, receives the signals `STOP`, and
    gets SIGTERM when this process or the warm one ends. If it is killed, the exit code is 1. After Ctrl-C, which a
    terminal sends to the fork too, this process waits for its end, but not after a second one.
    """
    path = os.environ.get(ADDRESS)
    if not path or limited() or arguments[:1] in ([], ["run"]):
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return None  # it is on another machine or has ended
        socket.send_fds(connection, [b"\n"], [0, 1, 2])
        request = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
        connection.sendall(json.dumps(request).encode() + b"\n")
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
        except ConnectionResetError:
            answer = ""
    if not answer and not interrupted:
        print("resync: error: the job was killed", file=sys.stderr)
    code = int(answer or 1)
    return INTERRUPTED if interrupted and code else code
