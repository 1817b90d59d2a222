"""A killed Snakemake leaves its lock files: who may delete them, and what a later start does."""

import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from machine import until

from resync.base.processes import workflow_lock

SLOW_PLAN = """
import time
from pathlib import Path

if Path("slow").exists():
    Path("started").touch()
    time.sleep(600)
for ending in ("json", "md"):
    Path(f"results/smoke/plan.{ending}").write_text("")
"""


def start(folder: Path) -> None:
    """Work in a folder and lock it as Snakemake does, until killed."""
    workflow_lock.hold(folder)
    (folder / ".snakemake/locks").mkdir(exist_ok=True)
    (folder / ".snakemake/locks/0.output.lock").touch()
    time.sleep(600)


@contextmanager
def snakemake_in(folder: Path) -> Iterator[multiprocessing.process.BaseProcess]:
    process = multiprocessing.get_context("fork").Process(target=start, args=(folder,))
    process.start()
    try:
        until(lambda: locked(folder))
        yield process
    finally:
        process.kill()
        process.join()


def locked(folder: Path) -> bool:
    return any((folder / ".snakemake/locks").glob("*.lock"))


def begin(folder: Path) -> None:
    """Another Snakemake starts and ends, in a process of its own."""
    child = multiprocessing.get_context("fork").Process(target=workflow_lock.hold, args=(folder,))
    child.start()
    child.join(60)
    assert child.exitcode == 0


def test_the_lock_of_a_living_snakemake_stays_and_that_of_a_killed_one_is_removed_with_a_line(tmp_path, capfd):
    with snakemake_in(tmp_path) as first:
        begin(tmp_path)
        assert locked(tmp_path)
        [line] = capfd.readouterr().err.splitlines()
        assert line.startswith(f"resync: Snakemake is at work in this folder already (pid {first.pid} on ")
    begin(tmp_path)
    assert not locked(tmp_path)
    [line] = capfd.readouterr().err.splitlines()
    assert f"resync: Snakemake was killed in this folder (pid {first.pid} on " in line
    begin(tmp_path)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("holder", ["of another machine", "unknown"])
def test_a_lock_whose_holder_cannot_be_seen_from_here_is_left_alone_at_every_start(holder, tmp_path, capfd):
    with snakemake_in(tmp_path):
        pass
    file = tmp_path / ".snakemake" / workflow_lock.HOLDERS
    written = json.loads(file.read_text())
    assert written["host"] == socket.gethostname()
    file.write_text("" if holder == "unknown" else json.dumps(written | {"host": "login2"}) + "\n")
    for _ in range(2):
        begin(tmp_path)
        assert locked(tmp_path)
        said = capfd.readouterr().err
        assert said == "" if holder == "unknown" else "on login2 since" in said and "snakemake --unlock" in said


@pytest.mark.slow
def test_snakemake_goes_on_after_a_kill_and_is_refused_beside_a_living_one(workflow):
    folder = workflow.directory
    (folder / "src/resync/__main__.py").write_text(SLOW_PLAN)
    (folder / "slow").touch()
    shutil.rmtree(folder / "paper_configs/qsr")  # a plan of one paper is soon made
    command = [sys.executable, "-m", "snakemake", "--profile", "workflow/profiles/local", "plan"]
    environment = os.environ | {"PYTHONPATH": "src"}
    with (folder / "first.out").open("w") as output:
        streams = {"stdout": output, "stderr": output}
        first = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **streams)
    try:
        until((folder / "started").exists)
        code, said = workflow.attempt("plan")
        assert code != 0
        assert f"at work in this folder already (pid {first.pid} on " in said
        assert "LockException" in said
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert locked(folder)
    (folder / "slow").unlink()
    assert f"Snakemake was killed in this folder (pid {first.pid} on " in workflow.snakemake("plan")
    assert not locked(folder)
    assert (folder / "results/smoke/plan.md").exists()
