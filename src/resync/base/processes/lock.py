"""Locks on files, so that only one job at a time trains a run, or converts a data set."""

import errno
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import IO, Any

from resync.base.files import clear_leftovers, open_regular

NAME = "run.lock"
HELD = "RESYNC_LOCKED"
"""The environment variable with the folder whose lock a parent of this process holds."""

_GLANCE_SECONDS = 0.1
_POLL_SECONDS = 1.0
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_held: dict[Path, tuple[int, IO[str]]] = {}
"""The folders whose lock this process holds, with its process id, which differs in a fork, and the open file."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of the run in `directory`; if another job holds it, print a message that names it and wait.

    This is an fcntl lock on a file, so that the kernel, or the server of a network file system, releases it when its
    holder dies, on this machine or another one. Half-written files that an earlier holder has left in the folder are
    deleted. A block nested in a parent process's block for the same folder does nothing.

    In POSIX such a lock belongs to the process, not to an open file: the holder loses it when it closes *any* file
    object on run.lock, even one opened only for reading. Within the block, use `holder`, which takes care of this, and
    let nothing else in this process open the file.
    """
    folder, outer = directory.resolve(), os.environ.get(HELD)
    if outer == str(folder) or _is_held_here(folder):
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    # Never deleted: after a deletion, two jobs could lock two different files.
    with (directory / NAME).open("a+", encoding="utf-8") as file:
        _wait_for(file, "the job that trains this run")
        file.truncate(0)
        file.write(json.dumps(_this_job()) + "\n")
        file.flush()
        clear_leftovers(directory)
        os.environ[HELD] = str(folder)
        _held[folder] = os.getpid(), file
        try:
            yield
        finally:
            del _held[folder]
            if outer is None:
                del os.environ[HELD]
            else:
                os.environ[HELD] = outer


def holder(directory: Path) -> dict[str, Any] | None:
    """Holder of the lock of the run in `directory`: host, pid, slurm_job and since; None if it is free."""
    if _held and _is_held_here(folder := directory.resolve()):
        return _written_in(_held[folder][1])
    try:
        with open_regular(directory / NAME) as file:
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


def _is_held_here(folder: Path) -> bool:
    return folder in _held and _held[folder][0] == os.getpid()


@contextmanager
def alone(path: Path, other: str) -> Iterator[None]:
    """Hold the lock of the file `path`, which exists only in the block; if `other` holds it, print a message and wait.

    Raises OSError where the file cannot be made.
    """
    while (file := _acquired(path, other)) is None:
        pass
    with file:
        try:
            file.truncate(0)
            file.write(json.dumps(_this_job()) + "\n")
            file.flush()
            yield
        finally:
            path.unlink(missing_ok=True)


def _acquired(path: Path, other: str) -> IO[str] | None:
    """The file with its lock; None if its former holder has deleted it, after which somebody may hold another one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        file = path.open("a+", encoding="utf-8")
        _wait_for(file, other)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()
    return None


def _wait_for(file: IO[str], other: str) -> None:
    for attempt in count():
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError):
            # Not at once: somebody may only have asked for the holder.
            if attempt == 1:
                print(f"resync: {file.name}: waiting for {other}: {_written_in(file)}", file=sys.stderr, flush=True)
            time.sleep(_POLL_SECONDS if attempt else _GLANCE_SECONDS)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            print(
                f"resync: warning: {file.name}: this file system has no locks ({error.strerror}): "
                "nothing prevents two jobs from training this run at the same time",
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


def _written_in(file: IO[Any]) -> dict[str, Any]:
    file.seek(0)
    try:
        return dict(json.loads(file.read()))
    except ValueError:
        return {}  # the holder is writing it right now
