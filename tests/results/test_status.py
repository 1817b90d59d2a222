"""The state of a run: the reports of `resync status` and the audit for every state of a folder."""

import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import synthetic

from resync.base.processes.lock import locked
from resync.papers.audit import audit
from resync.papers.paper import Suite
from resync.runs.results import state
from resync.runs.results.runs import state_of
from resync.runs.results.status import newest_scale, progress, table
from resync.runs.run import Run

STEPS = "step,epoch,step_data_seconds,step_compute_seconds,step_communication_seconds\n"


@pytest.fixture
def run(suite: Suite) -> Run:
    return suite.runs("toy", "smoke", "vit", "qsr")[0]


@contextmanager
def held(folder: Path) -> Iterator[multiprocessing.Process]:
    """The folder while another process trains its run."""
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
        yield job
    finally:
        end.set()
        job.join()


def fresh(folder: Path) -> None:
    """Leave nothing of the run."""
    shutil.rmtree(folder)
    folder.mkdir()


def record(word: str, reason: str) -> Callable[[Path, Run], None]:
    def act(folder: Path, run: Run) -> None:
        fresh(folder)
        state.record(folder, run, word, 44, reason)

    return act


def of_another_configuration(folder: Path, run: Run) -> None:
    fresh(folder)
    state.record(folder, with_seed_9(run), "failed", 44, "out of memory")


def diverged(folder: Path, run: Run) -> None:
    shutil.rmtree(folder)
    synthetic.write_run(run, folder.parents[len(run.directory.parts) - 1], diverged_at=330)


def written(name: str, text: str) -> Callable[[Path, Run], None]:
    return lambda folder, run: (folder / name).write_text(text) and None


def with_seed_9(run: Run) -> Run:
    return Run.model_validate(run.model_dump() | {"seed": 9})


def stale(folder: Path, run: Run) -> None:
    synthetic.rewrite(folder, config_hash="0" * 16)


STATES = {
    "nothing there": (lambda folder, run: shutil.rmtree(folder), "not run", "summary.json: missing", "open"),
    "killed": (record("running", ""), "failed", "killed?", "open"),
    "asked to stop": (record("stopped", "SIGTERM: stops after step 44"), "stopped", "SIGTERM", "open"),
    "an error": (record("failed", "out of space"), "failed", "out of space", "open"),
    "an old failure": (of_another_configuration, "not run", "its last job had configuration", "open"),
    "half a state": (lambda folder, run: (fresh(folder), written("state.json", "{")(folder, run)), "damaged",
                     "state.json: not JSON", "open"),
    "results": (lambda folder, run: None, "finished", "", "agrees"),
    "results beside an old state": (lambda folder, run: state.record(folder, run, "failed", 3, "out of space"),
                                    "finished", "", "agrees"),
    "no finite loss": (diverged, "diverged", "at step 330 worker 3", "open"),
    "another configuration": (stale, "stale", "trained with configuration 0000000000000000", "untested"),
    "another run.yaml": (lambda folder, run: written("run.yaml", with_seed_9(run).to_yaml())(folder, run), "stale",
                         "run.yaml has configuration", "untested"),
    "half a run.yaml": (written("run.yaml", "momentum: ["), "stale", "run.yaml cannot be read", "untested"),
    "no run.yaml": (lambda folder, run: (folder / "run.yaml").unlink(), "stale", "run.yaml cannot be read", "untested"),
    "old columns": (lambda folder, run: (stale(folder, run), written("metrics.csv", "step,train\n")(folder, run)),
                    "stale", "trained with configuration", "untested"),
    "other rounds than planned": (lambda folder, run: synthetic.rewrite(folder, rounds=130), "damaged",
                                  "found 130 rounds, allowed: 129", "open"),
    "half a table": (written("metrics.csv", "step,epoch"), "damaged", "metrics.csv: the last line", "open"),
    "half a summary": (written("summary.json", "{"), "damaged", "summary.json: not JSON", "open"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_status_and_audit_agree_on_every_state(name: str, suite: Suite, run: Run, results: Path):
    act, status, reason, verdict = STATES[name]
    act(results / run.directory, run)
    found = progress(run, results)
    assert (found.status, found.seconds_left) == (status, None)
    assert reason in found.reason
    _agree(suite, run, results, status, found.reason, verdict)


def _agree(suite: Suite, run: Run, results: Path, status: str, reason: str, verdict: str) -> None:
    """The audit's line on a claim on the series says what `resync status` says of this one of its three seeds."""
    row = next(row for row in audit(suite, "smoke", results).claims if row.id == "qsr_beats_h4")
    assert row.verdict == verdict, row.reason
    if status not in ("finished", "diverged"):  # which has the worst rank
        assert reason in row.reason
    if status not in ("finished", "stale", "diverged", "not run"):
        assert f"seed {run.seed} {status}: {reason}" in row.reason


@pytest.mark.parametrize("clocks", [("0.2,0.2", "0.3,0.1"), ("0.4,nan", "0.4,nan")], ids=["all clocks", "overlap"])
def test_a_running_run_has_a_place_and_an_end(clocks: tuple[str, str], suite: Suite, run: Run, results: Path):
    folder = results / run.directory
    fresh(folder)
    state.begin(folder, run)
    (folder / "steps.csv.partial").write_text(STEPS + f"10,0.5,0.1,{clocks[0]}\n20,1.0,0.1,{clocks[1]}\n30,1.5,0.")
    with held(folder) as job:
        found = progress(run, results)
        _agree(suite, run, results, "running", found.reason, "open")
    assert (found.status, found.step) == ("running", 20)
    assert found.seconds_left == pytest.approx(0.5 * (run.total_steps - 20))
    assert f"pid {job.pid}" in found.reason
    assert (progress(run, results).status, progress(run, results).step) == ("failed", 20)
    assert "1 runs: 1 running" in table([found])


@pytest.mark.parametrize(
    ("code", "before", "status", "reason"),
    [
        (1, "running", "failed", "its processes ended with exit code 1"),
        (75, "running", "stopped", "asked to stop before the training began"),
        (1, "failed", "failed", "out of space"),
        (75, "stopped", "stopped", "out of space"),
        (0, "running", "failed", "killed?"),
    ],
)
def test_a_launcher_says_what_its_processes_could_not(code, before, status, reason, run: Run, tmp_path: Path):
    state.record(tmp_path / run.directory, run, before, 5, "out of space" if before != "running" else "")
    state.conclude(tmp_path / run.directory, run, code)
    found = state_of(run, tmp_path)
    assert (found.status, found.step) == (status, 5)
    assert reason in found.reason


def test_the_first_cause_counts(run: Run, tmp_path: Path):
    folder = tmp_path / run.directory
    state.begin(folder, run)
    for error in (OSError("out of space"), RuntimeError("connection closed by peer")):
        with pytest.raises(type(error)), state.failures_recorded(folder, run):
            raise error
    assert state_of(run, tmp_path).reason.startswith("OSError: out of space (")
    state.begin(folder, run)
    with pytest.raises(RuntimeError), state.failures_recorded(folder, run):
        raise RuntimeError("connection closed by peer\nand more")
    assert state_of(run, tmp_path).reason.startswith("RuntimeError: connection closed by peer (")


def test_a_state_is_read_by_others(run: Run, tmp_path: Path):
    state.record(tmp_path, run, "stopped", 7, "SIGTERM")
    content = json.loads((tmp_path / "state.json").read_text())
    assert content.pop("time").endswith("+00:00")
    assert content == {"state": "stopped", "config_hash": run.hash, "step": 7, "reason": "SIGTERM", "mistake": False}


def test_a_run_that_begins_again_is_at_its_last_known_step(run: Run, tmp_path: Path):
    other = with_seed_9(run)
    state.record(tmp_path, run, "stopped", 7, "SIGTERM")
    state.begin(tmp_path, run)
    assert state.recorded(tmp_path).step == 7
    state.begin(tmp_path, other)
    assert state.recorded(tmp_path).step == 0


def test_a_series_is_one_line_about_its_most_urgent_seed(suite: Suite, results: Path):
    runs = suite.runs("toy", "smoke", "vit", "qsr")
    state.record(results / runs[1].directory, runs[1], "failed", 3, "an old failure, before the results")
    fresh(results / runs[2].directory)
    state.record(results / runs[2].directory, runs[2], "failed", 44, "out of space")
    found = [progress(run, results) for run in runs]
    heading, line, _, last = table(found, by="series").splitlines()
    assert heading.split()[:2] == ["series", "state"]
    assert line.startswith("toy/vit/qsr  2 finished, 1 failed  44/660")
    assert line.endswith("out of space")
    assert last == "3 runs: 2 finished, 1 failed"


def test_a_finished_series_has_the_mean_of_its_last_values(suite: Suite, results: Path):
    found = [progress(run, results) for run in suite.runs("toy", "smoke", "vit", "qsr")]
    values = [each.value for each in found]
    assert {each.metric for each in found} == {"val_top1"}
    assert f"val_top1 {sum(values) / 3:.4g}" in table(found, by="series")


def test_the_newest_scale_is_that_of_the_run_that_was_written_last(suite: Suite, results: Path):
    assert newest_scale(results / "nowhere") == "smoke"
    folder = results / "mini/toy/vit/qsr/seed0"
    folder.mkdir(parents=True)
    os.utime(folder, (2e9, 2e9))
    assert newest_scale(results) == "mini"
