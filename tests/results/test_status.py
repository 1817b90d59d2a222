"""`resync status`: what the files of a run say, whatever has become of it."""

import json
import multiprocessing
from pathlib import Path

import pytest

from resync.processes.lock import locked
from resync.results.status import status, table

STEPS = "step,epoch,data_seconds,compute_seconds,communication_seconds\n"


@pytest.fixture
def run(suite):
    return suite.runs("toy", "smoke")[0]


def folder_of(run, results: Path, log: str = "", summary: dict | None = None) -> Path:
    folder = results / run.directory
    folder.mkdir(parents=True)
    if log:
        (folder / "train.log").write_text(log)
    if summary:
        (folder / "summary.json").write_text(json.dumps({"config_hash": run.hash, "steps": run.total_steps} | summary))
    return folder


@pytest.mark.parametrize(
    ("log", "summary", "state", "reason"),
    [
        ("", None, "queued", ""),
        ("a: epoch 1\n", {"status": "finished"}, "done", ""),
        ("a\n", {"status": "finished", "config_hash": "0"}, "stale", "results of another configuration"),
        ("a\n", {"status": "diverged", "diverged": {"step": 7, "worker": 3}}, "diverged", "step 7, worker 3"),
        ("a: SIGTERM: stops after step 20 of 90 with a checkpoint\n", None, "stopped", "continues"),
        ("resync: rank 3 ends after step 8: no step for 9 s\nbye\n", None, "failed", "no step for 9 s"),
        (
            "resync: error: out of space\nresync: error: a: rank 0 ended with exit code 2\n",
            None,
            "failed",
            "out of space",
        ),
        ("a: epoch 3 step 30\n", None, "failed", "ended without a word after: a: epoch 3 step 30"),
    ],
)
def test_what_the_files_say(log, summary, state, reason, run, tmp_path):
    folder_of(run, tmp_path, log, summary)
    found = status(run, tmp_path)
    assert found.state == state
    assert reason in found.reason
    assert found.seconds_left is None


def test_a_running_run_has_a_place_and_an_end(run, tmp_path):
    folder = folder_of(run, tmp_path, "a: epoch 0\n")
    (folder / "steps.csv.partial").write_text(STEPS + "10,0.5,0.1,0.2,0.2\n20,1.0,0.1,0.3,0.1\n30,1.5,0.")
    context = multiprocessing.get_context("fork")
    ready, end = context.Event(), context.Event()

    def hold() -> None:
        with locked(folder):
            ready.set()
            end.wait()

    job = context.Process(target=hold)
    job.start()
    try:
        ready.wait()
        found = status(run, tmp_path)
    finally:
        end.set()
        job.join()
    assert (found.state, found.step, found.seconds_left) == ("running", 20, pytest.approx(0.5 * (run.total_steps - 20)))
    assert f"pid {job.pid}" in found.reason
    assert status(run, tmp_path).state == "failed"
    assert "1 runs: 1 running" in table([found])
