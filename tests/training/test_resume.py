"""An interrupted run ends like one that was not."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from processes import TIMEOUT, run_processes
from runs import VARIANTS, make_run, make_session, trained, trained_until

from resync.processes import warm
from resync.train.saving import resume

CHECKPOINT_STEP = 5


@pytest.mark.parametrize("name", VARIANTS)
def test_continued_run_has_the_same_bits(name: str, tmp_path: Path):
    """Step 5 is in the middle of a round of 4 and between two evaluations."""
    changes = VARIANTS[name] | {"log": {"every_steps": 1, "wandb": "disabled"}}
    whole = trained(0, 1, tmp_path / "whole", changes)
    trained_until(0, 1, tmp_path / "parts", changes, CHECKPOINT_STEP)
    parts = trained(0, 1, tmp_path / "parts", changes)
    assert parts["resumed_from"] == [CHECKPOINT_STEP]
    assert np.array_equal(parts["rows"], whole["rows"])
    assert (parts["rounds"], parts["bytes_sent"]) == (whole["rounds"], whole["bytes_sent"])
    for ours, reference in zip(parts["log"]["metrics.csv"], whole["log"]["metrics.csv"][1:], strict=True):
        for metric in reference:
            assert "seconds" in metric or ours[metric] == reference[metric], metric


def test_run_continues_on_another_number_of_processes(tmp_path: Path):
    changes = VARIANTS["local_adamw"]
    whole = trained(0, 1, tmp_path / "whole", changes)
    run_processes(2, trained_until, tmp_path / "parts", changes, CHECKPOINT_STEP)
    parts = trained(0, 1, tmp_path / "parts", changes)
    assert parts["resumed_from"] == [CHECKPOINT_STEP]
    np.testing.assert_allclose(parts["rows"], whole["rows"], rtol=0, atol=1e-6)


def test_run_continues_where_only_how_it_is_carried_out_has_changed(tmp_path: Path):
    before = VARIANTS["local_adamw"] | {"processes": 2, "checkpoint": {"keep": 1}, "log": {"wandb": "disabled"}}
    after = VARIANTS["local_adamw"] | {"engine": {"name": "serial"}, "threads": 1, "checkpoint": {"every_rounds": 3}}
    whole = trained(0, 1, tmp_path / "whole", VARIANTS["local_adamw"])
    run_processes(2, trained_until, tmp_path / "parts", before, CHECKPOINT_STEP)
    parts = trained(0, 1, tmp_path / "parts", after)
    assert parts["resumed_from"] == [CHECKPOINT_STEP]
    np.testing.assert_allclose(parts["rows"], whole["rows"], rtol=0, atol=1e-6)


def test_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    trained(0, 1, tmp_path, {"checkpoint": {"every_rounds": 3}})
    newest = max((tmp_path / "checkpoint").iterdir())
    (newest / "shared.pt").write_bytes(b"half a file")
    session = make_session(tmp_path, checkpoint={"every_rounds": 3})
    resume(session)
    assert session.resumed_from[-1] < 14
    assert newest.name in caplog.text
    assert "damaged (shared.pt)" in caplog.text


def test_checkpoint_of_another_configuration_is_not_taken(tmp_path: Path):
    trained(0, 1, tmp_path, {})
    session = make_session(tmp_path, seed=4)
    resume(session)
    assert session.resumed_from == []
    assert session.sync.steps == 0
    assert not list((tmp_path / "checkpoint").iterdir())


def test_half_written_checkpoint_is_not_taken(tmp_path: Path):
    trained_until(0, 1, tmp_path, {}, CHECKPOINT_STEP)
    (tmp_path / "checkpoint" / "step0000000005").rename(tmp_path / "checkpoint" / "step0000000005.partial")
    session = make_session(tmp_path)
    resume(session)
    assert session.resumed_from == []


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path):
    trained(0, 1, tmp_path, {"checkpoint": {"every_rounds": 3, "keep": 2}})
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == [
        "step0000000012",
        "step0000000014",
    ]


@pytest.mark.slow
def test_killed_rank_then_the_same_command_gives_the_same_bits(tmp_path: Path):
    """kill -9 of one of two processes in mid-run, through the launcher as users start it."""
    changes: dict[str, Any] = {
        "processes": 2,
        "epochs": 60,
        "checkpoint": {"every_rounds": 40},
        "evaluation": {"every_epochs": 30},
        "sync": {"name": "sgp"},
    }
    whole = run_processes(2, trained, tmp_path / "whole", changes)
    folder = tmp_path / "parts"
    make_run(folder, **changes)
    with _launched(folder) as first:
        _wait_for_checkpoint(folder, first)
        ranks = first.children()
        assert len(ranks) == 2
        ranks[1].kill()
        assert first.wait(TIMEOUT) != 0
        assert not any(rank.is_running() for rank in ranks)
    assert not (folder / "summary.json").exists()
    with _launched(folder) as second:
        assert second.wait(TIMEOUT) == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["resumed_from"]
    rows = np.concatenate([rank["rows"] for rank in whole])
    assert np.array_equal(_final_rows(folder / "checkpoint"), rows)
    assert summary["parameters_sha256"] == hashlib.sha256(_mean_over_processes(rows).tobytes()).hexdigest()


@contextmanager
def _launched(folder: Path) -> Iterator[psutil.Popen]:
    """`resync launch` of the folder's configuration; nothing of it outlives the block."""
    config = str(folder / "config.yaml")
    command = [sys.executable, "-m", "resync", "launch", "--config", config, "--out", str(folder)]
    # In a process of its own, whose children are the ranks, and not in the one that `make test` keeps warm.
    environment = {name: value for name, value in os.environ.items() if name != warm.ADDRESS}
    process = psutil.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    try:
        yield process
    finally:
        if process.is_running():
            for each in [*process.children(recursive=True), process]:
                each.kill()
            process.wait()


def _wait_for_checkpoint(folder: Path, process: psutil.Popen) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not list((folder / "checkpoint").glob("step??????????")):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _final_rows(checkpoints: Path) -> np.ndarray:
    files = sorted(max(checkpoints.iterdir()).glob("workers*.pt"))
    states = [state for file in files for state in torch.load(file, weights_only=True)["states"]]
    return torch.stack([state["workers"]["rows"] for state in states]).numpy()


def _mean_over_processes(rows: np.ndarray) -> np.ndarray:
    """The mean of four rows in two processes, in the order of its sums."""
    return (torch.from_numpy(rows[:2]).sum(0) + torch.from_numpy(rows[2:]).sum(0)).div(4).numpy()
