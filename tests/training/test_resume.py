"""An interrupted run ends like one that was not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from processes import run_processes
from runs import VARIANTS, make_run, make_session, trained, trained_until

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
        for metric in ("step", "round", "h", "lr", "train_loss", "val_loss", "val_top1", "bytes_sent"):
            assert ours[metric] == reference[metric], metric


def test_run_continues_on_another_number_of_processes(tmp_path: Path):
    changes = VARIANTS["local_adamw"]
    whole = trained(0, 1, tmp_path / "whole", changes)
    run_processes(2, trained_until, tmp_path / "parts", changes, CHECKPOINT_STEP)
    parts = trained(0, 1, tmp_path / "parts", changes)
    assert parts["resumed_from"] == [CHECKPOINT_STEP]
    np.testing.assert_allclose(parts["rows"], whole["rows"], rtol=0, atol=1e-6)


def test_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    trained(0, 1, tmp_path, {})
    newest = max((tmp_path / "checkpoint").iterdir())
    (newest / "shared.pt").write_bytes(b"half a file")
    session = make_session(tmp_path)
    session.resume()
    assert session.resumed_from[-1] < 14
    assert newest.name in caplog.text
    assert "damaged (shared.pt)" in caplog.text


def test_checkpoint_of_another_configuration_is_not_taken(tmp_path: Path):
    trained(0, 1, tmp_path, {})
    session = make_session(tmp_path, seed=4)
    session.resume()
    assert session.resumed_from == []
    assert session.sync.steps == 0
    assert not list((tmp_path / "checkpoint").iterdir())


def test_half_written_checkpoint_is_not_taken(tmp_path: Path):
    trained_until(0, 1, tmp_path, {}, CHECKPOINT_STEP)
    (tmp_path / "checkpoint" / "step0000000005").rename(tmp_path / "checkpoint" / "step0000000005.partial")
    session = make_session(tmp_path)
    session.resume()
    assert session.resumed_from == []


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path):
    trained(0, 1, tmp_path, {"checkpoint": {"every_rounds": 3, "keep": 2}})
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == [
        "step0000000012",
        "step0000000014",
    ]


def test_killed_rank_then_the_same_command_gives_the_same_bits(tmp_path: Path):
    """kill -9 of one of two processes in mid-run, through the launcher as users start it."""
    changes: dict[str, Any] = {
        "processes": 2,
        "epochs": 200,
        "checkpoint": {"every_rounds": 40},
        "evaluation": {"every_epochs": 50},
        "sync": {"name": "sgp"},
    }
    make_run(tmp_path / "whole", **changes)
    make_run(tmp_path / "parts", **changes)
    assert _launch(tmp_path / "whole").wait(timeout=600) == 0

    first = _launch(tmp_path / "parts")
    _wait_for_checkpoint(tmp_path / "parts", first)
    ranks = [child for child in psutil.Process(first.pid).children(recursive=True) if "RANK" in _environment(child)]
    assert len(ranks) == 2
    os.kill(ranks[1].pid, signal.SIGKILL)
    assert first.wait(timeout=600) != 0
    assert not (tmp_path / "parts" / "summary.json").exists()
    assert not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)

    assert _launch(tmp_path / "parts").wait(timeout=600) == 0
    whole, parts = (torch.load(tmp_path / name / "model.pt", weights_only=True) for name in ("whole", "parts"))
    assert all(torch.equal(whole[key], parts[key]) for key in whole)
    summaries = [_summary(tmp_path / name) for name in ("whole", "parts")]
    assert summaries[0]["parameters_sha256"] == summaries[1]["parameters_sha256"]
    assert summaries[1]["resumed_from"]


def _launch(folder: Path) -> subprocess.Popen[bytes]:
    config = str(folder / "config.yaml")
    command = [sys.executable, "-m", "resync", "launch", "--config", config, "--out", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def _wait_for_checkpoint(folder: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 600
    while not list((folder / "checkpoint").glob("step??????????")):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


def _summary(folder: Path) -> dict[str, Any]:
    import json

    return json.loads((folder / "summary.json").read_text())
