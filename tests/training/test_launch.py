"""How a launcher calls the training in its own process, and what it makes of its end."""

import errno
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from runs import make_run

from resync.base.errors import UserError
from resync.runs import train
from resync.runs.results import state
from resync.runs.results.summary import commits
from resync.runs.run import Run
from resync.tools.cli import main


@pytest.fixture
def launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, list[tuple[Run, Path, float]]]]:
    """`resync launch` of a run whose attempts end with the given results or exceptions: exit code and calls."""
    make_run(tmp_path)

    def launch(*ends: bool | Exception, restarts: int = 1) -> tuple[int, list[tuple[Run, Path, float]]]:
        calls: list[tuple[Run, Path, float]] = []

        def trained(run: Run, out: Path, timeout: float) -> bool:
            calls.append((run, out, timeout))
            if isinstance(end := ends[len(calls) - 1], Exception):
                raise end
            return end

        monkeypatch.setattr(train, "train", trained)
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        flags = ["--config", tmp_path / "config.yaml", "--out", tmp_path / "out", "--max-restarts", restarts]
        return main(["launch", *map(str, flags), "--timeout", "77"]), calls

    return launch


def test_a_run_of_one_process_is_trained_with_typed_arguments(launched, tmp_path: Path):
    code, [(run, out, timeout)] = launched(True)
    assert (code, out, timeout) == (0, tmp_path / "out", 77)
    assert isinstance(run, Run)
    assert run.hash == Run.from_file(tmp_path / "config.yaml").hash


def test_a_run_that_was_asked_to_stop_is_not_started_again(launched):
    code, calls = launched(False)
    assert (code, len(calls)) == (75, 1)


def test_a_mistake_is_one_line_and_not_tried_again(launched, capsys: pytest.CaptureFixture[str]):
    code, calls = launched(UserError("the model does not fit"))
    assert (code, len(calls)) == (2, 1)
    assert capsys.readouterr().err == "resync: error: the model does not fit\n"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ValueError("invalid literal"), r"Traceback(?s:.*)\nValueError: invalid literal\n"),
        (OSError(errno.ESTALE, "Stale file handle"), r"resync: error: .*Stale file handle \(.*:\d+\)\n"),
        (FileNotFoundError(errno.ENOENT, "no such file"), r"resync: error: .*no such file \(.*:\d+\)\n"),
        (ConnectionError("no port"), r"resync: error: no port\n"),
        (torch.OutOfMemoryError("GPU out of memory.\n8 GiB"), r"resync: error: GPU out of memory\. \(.*:\d+\)\n"),
        (MemoryError(), r"resync: error: out of memory \(.*:\d+\)\n"),
    ],
    ids=["defect", "a fault that may pass", "a file that has gone", "processes that cannot meet", "GPU full", "full"],
)
def test_what_is_not_raised_on_purpose_says_where_and_is_tried_again(fault, said, launched, tmp_path: Path, capsys):
    assert [(code, len(calls)) for code, calls in [launched(fault, True)]] == [(0, 2)]
    assert re.fullmatch(said, capsys.readouterr().err)
    assert launched(fault, restarts=0)[0] == 1
    assert "resync: test/small/one/seed3: failed: " in capsys.readouterr().err
    assert not state.recorded(tmp_path / "out").mistake


def test_a_run_whose_launcher_ends_with_a_code_of_its_own_has_failed(tmp_path: Path, monkeypatch, capsys):
    """DeepSpeed's ends with 247 where a rank was killed."""
    make_run(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("resync.runs.launch.machine.run", lambda *_: 247)
    assert main(["launch", "--config", f"{tmp_path}/config.yaml", "--out", str(tmp_path)]) == 1
    reason = "its processes ended with exit code 247"
    assert state.recorded(tmp_path).reason == reason
    assert capsys.readouterr().err == f"resync: test/small/one/seed3: failed: {reason}\n"


def test_a_programming_error_in_a_training_is_recorded_with_file_and_line(tmp_path: Path, monkeypatch, capfd):
    make_run(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("resync.runs.train.loop.train_step", lambda *_, **__: int("x"))
    assert main(["launch", "--config", f"{tmp_path}/config.yaml", "--out", str(tmp_path)]) == 1
    assert "Traceback" in capfd.readouterr().err
    failed = state.recorded(tmp_path)
    assert not failed.mistake
    assert re.fullmatch(r"ValueError: invalid literal for int.* \(runs/train/loop\.py:\d+\)", failed.reason)


def test_a_finished_run_publishes_its_last_checkpoint_again_unless_asked_to_train_anew(tmp_path: Path, monkeypatch):
    make_run(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = ["launch", "--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path)]
    state.ask_anew(tmp_path)  # without effect: the run has no results
    found = []
    for commit, asked in (("a", False), ("b", False), ("c", True), ("d", False)):
        if asked:
            state.ask_anew(tmp_path)
        (tmp_path / "summary.json").unlink(missing_ok=True)  # as Snakemake does
        monkeypatch.setattr("resync.runs.train.provenance.GIT", {"commit": commit, "dirty": False})
        assert main(command) == 0
        summary = json.loads((tmp_path / "summary.json").read_text())
        assert commits(summary) == [summary["git"]]
        found.append((summary["resumed_from"], summary["git"]["commit"]))
    assert found == [([], "a"), ([14], "a"), ([], "c"), ([14], "c")]
    assert not (tmp_path / state.ANEW).exists()


def test_the_commits_of_a_run_are_those_of_the_jobs_that_took_its_steps():
    jobs = [{"first_step": step, "git": {"commit": str(step), "dirty": False}} for step in (0, 10, 20)]
    for steps, expected in ((15, jobs[:2]), (20, jobs[:2]), (21, jobs)):
        assert commits({"steps": steps, "jobs": jobs}) == [job["git"] for job in expected]
    assert commits({"steps": 0, "jobs": jobs}) == [jobs[-1]["git"]]  # it diverged before its first step


def test_a_workflow_that_tries_again_does_not_try_a_mistake_again(tmp_path: Path, monkeypatch, capsys):
    make_run(tmp_path, data={"name": "mnist_14"}, epochs=1, steps_per_epoch=None)
    monkeypatch.delenv("RESYNC_DATA", raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    command = ["launch", "--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "out"), "--attempt"]
    said = []
    for attempt in ("1", "2", "3", "1"):  # the last one: the user starts the workflow again
        assert main([*command, attempt]) == 2
        [line] = capsys.readouterr().err.splitlines()
        said.append(line.removeprefix("resync: error: "))
    mistake = "data mnist_14: RESYNC_DATA is not set"
    assert said[0].startswith(mistake)
    assert said[1] == said[2] == f"not tried again: {said[0]}"
    assert said[3] == said[0]
