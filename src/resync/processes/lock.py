"""A run is trained by one job at a time: a lock in the run's folder."""

import errno
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from resync.files import clear_leftovers

NAME = "run.lock"
HELD = "RESYNC_LOCKED"
"""The environment variable with the folder whose lock a parent of this process holds."""

_POLL_SECONDS = 1.0
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of the run in `directory`; waits for another job that holds it, and says for which.

    The lock is fcntl's on a file, so that the kernel, or the server of a network file system, gives it back when its
    holder dies, on this machine or another one. What died before it left no half-written file in the folder: those
    are deleted. A block within the block of a parent process does nothing.
    """
    if os.environ.get(HELD) == str(directory.resolve()):
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    # Its name stays: whoever deleted it would let two jobs lock two files.
    with (directory / NAME).open("a+") as file:
        _wait_for(file)
        file.truncate(0)
        file.write(json.dumps(_this_job()) + "\n")
        file.flush()
        clear_leftovers(directory)
        os.environ[HELD] = str(directory.resolve())
        try:
            yield
        finally:
            del os.environ[HELD]


def holder(directory: Path) -> dict[str, Any] | None:
    """Who holds the lock of the run in `directory`: host, pid, slurm_job and since; None if nobody does."""
    try:
        with (directory / NAME).open() as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _written_in(file)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
            return None
    except FileNotFoundError:
        return None


def _wait_for(file: IO[str]) -> None:
    announced = False
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError):
            if not announced:
                print(f"resync: {file.name}: waits for the job that trains this run: {_written_in(file)}", flush=True)
                announced = True
            time.sleep(_POLL_SECONDS)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            print(
                f"resync: warning: {file.name}: this file system has no locks ({error.strerror}): "
                "nothing keeps two jobs from training this run at once",
                file=sys.stderr,
            )
            return


def _this_job() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "slurm_job": os.environ.get("SLURM_JOB_ID"),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _written_in(file: IO[str]) -> dict[str, Any]:
    file.seek(0)
    try:
        return dict(json.loads(file.read()))
    except ValueError:
        return {}  # the holder is just writing it
