"""The lock of a run's folder, as seen by two processes."""

import os
import subprocess
import sys
from pathlib import Path

from resync.base.processes import lock

ASK = "import pathlib, sys; from resync.base.processes.lock import holder; print(holder(pathlib.Path(sys.argv[1])))"


def seen_by_others(folder: Path) -> str:
    """The holder of the lock as seen by another process; `None` if the kernel would grant the lock to that process."""
    done = subprocess.run([sys.executable, "-c", ASK, folder], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_process_that_asks_who_holds_its_own_lock_keeps_it(tmp_path: Path):
    """POSIX releases the lock of a process that closes any file object on the locked file."""
    with lock.locked(tmp_path):
        found = lock.holder(tmp_path)
        assert found is not None
        assert found["pid"] == os.getpid()
        assert seen_by_others(tmp_path) == str(found)
    assert lock.holder(tmp_path) is None
    assert seen_by_others(tmp_path) == "None"


def test_a_block_within_the_block_of_another_folder_leaves_both_locked(tmp_path: Path, monkeypatch):
    monkeypatch.delenv(lock.HELD, raising=False)
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    with lock.locked(outer):
        with lock.locked(inner), lock.locked(outer):
            assert os.environ[lock.HELD] == str(inner)
        assert os.environ[lock.HELD] == str(outer)
        assert seen_by_others(inner) == "None"
        assert seen_by_others(outer) != "None"
    assert lock.HELD not in os.environ


def test_nobody_waits_for_one_that_only_asks_who_holds_the_lock(tmp_path: Path, monkeypatch, capsys):
    ask = "import fcntl, sys; file = open(sys.argv[1]); fcntl.lockf(file, fcntl.LOCK_SH); print(flush=True); input()"
    (tmp_path / lock.NAME).touch()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", ask, tmp_path / lock.NAME], text=True, **pipes) as other:
        other.stdout.readline()
        monkeypatch.setattr(lock.time, "sleep", lambda seconds: other.communicate("\n"))
        with lock.locked(tmp_path):
            assert capsys.readouterr().err == ""
