"""Whether a Snakemake that has locked its folder still lives: its own lock files name no process.

Snakemake takes its lock away at its end, but not when it is killed or the power fails; then every later start is
refused until somebody calls `snakemake --unlock`. Here each Snakemake also holds an fcntl lock, which the kernel, or
the server of a network file system, releases whatever ends its holder. So a lock that nobody holds any more is known.
"""

import fcntl
import json
import os
import shutil
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

HOLDERS = "resync_holders.lock"
"""The file in .snakemake with a shared lock of every living Snakemake, and a line for each: host, pid and since."""

_held: dict[Path, tuple[int, IO[str]]] = {}
"""The files that this process holds a lock on, with its process id, which differs in a fork."""


def hold(folder: Path) -> None:
    """Let others see, until this process ends, that it works in `folder`; call it before Snakemake takes its lock.

    If no other process does, the lock files of a Snakemake that was killed on this machine are deleted. Those of
    another machine are left alone, because not every file system shows its locks to other machines, and so are those of
    a Snakemake that did not call this.
    """
    state = folder.resolve() / ".snakemake"
    path = state / HOLDERS
    if path in _held and _held[path][0] == os.getpid():
        return
    state.mkdir(exist_ok=True)
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        # Waits while another one that has just started deletes lock files.
        fcntl.lockf(file, fcntl.LOCK_SH)
        others = [holder for holder in _holders(file) if not _has_ended(holder)]
        _say(f"Snakemake is at work in this folder already ({_described(others)}): what it makes can be made again "
             "when it has ended. Leave its lock alone (no --unlock)")  # fmt: skip
    except OSError as error:
        file.close()
        _say(f"{path}: no locks on this file system ({error.strerror}); after a kill, call snakemake --unlock")
        return
    else:
        locks, earlier = state / "locks", _holders(file)
        if locks.is_dir() and any(locks.iterdir()) and not _removed(locks, earlier):
            file.close()
            return
        file.truncate(0)
        fcntl.lockf(file, fcntl.LOCK_SH)
    this = {"host": socket.gethostname(), "pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
    file.write(json.dumps(this) + "\n")
    file.flush()
    # POSIX releases the lock when this process closes any file object of this file: it stays open.
    _held[path] = os.getpid(), file


def _removed(locks: Path, holders: list[dict[str, Any]]) -> bool:
    """Delete the lock files of `holders`, none of which lives as far as this machine can see, if all were on it."""
    if not holders:
        return False
    if elsewhere := [holder for holder in holders if holder["host"] != socket.gethostname()]:
        _say(f"Snakemake on another machine may be at work in this folder ({_described(elsewhere)}). If it has ended "
             "there, remove its lock: snakemake --unlock")  # fmt: skip
        return False
    shutil.rmtree(locks)
    _say(f"Snakemake was killed in this folder ({_described(holders)}): its lock is removed, and its work continues")
    return True


def _holders(file: IO[str]) -> list[dict[str, Any]]:
    """The lines of the file; one that its writer has not completed is left out."""
    file.seek(0)
    return [json.loads(line) for line in file if line.endswith("}\n")]


def _has_ended(holder: dict[str, Any]) -> bool:
    return holder["host"] == socket.gethostname() and not Path(f"/proc/{holder['pid']}").exists()


def _described(holders: list[dict[str, Any]]) -> str:
    return "; ".join(f"pid {holder['pid']} on {holder['host']} since {holder['since']}" for holder in holders)


def _say(text: str) -> None:
    print(f"resync: {text}", file=sys.stderr, flush=True)
