"""An interrupted run ends like one that was not."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from launched import checkpoints, code_of, finish, launched
from machine import until
from processes import run_processes
from runs import VARIANTS, make_run, make_session, trained, trained_until
from torch.nn.utils import parameters_to_vector

from resync.base import files
from resync.runs.train import train
from resync.runs.train.loop import train_to_end
from resync.runs.train.saving import resume

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
    for ours, reference in zip(parts["log"]["steps.csv"], whole["log"]["steps.csv"], strict=True):
        assert all(
            "seconds" in name or np.array_equal(ours[name], reference[name], equal_nan=True) for name in reference
        )


def test_run_continues_where_only_how_it_is_carried_out_has_changed(tmp_path: Path):
    """Another number of processes, engine, threads and checkpoints."""
    before = VARIANTS["local_adamw"] | {"processes": 2, "checkpoint": {"keep": 1}, "log": {"wandb": "disabled"}}
    after = VARIANTS["local_adamw"] | {"engine": {"name": "serial"}, "threads": 1, "checkpoint": {"every_rounds": 3}}
    whole = trained(0, 1, tmp_path / "whole", VARIANTS["local_adamw"])
    run_processes(2, trained_until, tmp_path / "parts", before, CHECKPOINT_STEP)
    parts = trained(0, 1, tmp_path / "parts", after)
    assert parts["resumed_from"] == [CHECKPOINT_STEP]
    np.testing.assert_allclose(parts["rows"], whole["rows"], rtol=0, atol=1e-6)


THREE = {"checkpoint": {"every_rounds": 3}}
DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "half a file": ("shared.pt", lambda folder: (folder / "shared.pt").write_bytes(b"half")),
    "shared.pt missing": ("shared.pt", lambda folder: (folder / "shared.pt").unlink()),
    "workers missing": ("workers00002.pt", lambda folder: (folder / "workers00002.pt").unlink()),
    "workers and their checksum missing": (
        "workers00000.pt", lambda folder: [file.unlink() for file in folder.glob("workers00000.*")],
    ),
    "checksum missing": ("shared.pt", lambda folder: (folder / "shared.sha256").unlink()),
    "checksum not a mapping": ("shared.pt", lambda folder: (folder / "shared.sha256").write_text("[]")),
    "identity missing": ("identity", lambda folder: (folder / "identity").unlink()),
    "identity not UTF-8": ("identity", lambda folder: (folder / "identity").write_bytes(b"\xff\xfe")),
    "identity not a mapping": ("identity", lambda folder: (folder / "identity").write_text("[1]")),
    "empty folder": ("identity", lambda folder: [file.unlink() for file in folder.iterdir()]),
}  # fmt: skip


@pytest.fixture(scope="module")
def of_two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with two checkpoints, after steps 12 and 14."""
    folder = tmp_path_factory.mktemp("two")
    run_processes(2, trained, folder, THREE)
    return folder


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    name: str, of_two_processes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    shutil.copytree(of_two_processes / "checkpoint", tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "stepfoo").mkdir()  # no checkpoint, and nothing that would be deleted
    file, damage = DAMAGES[name]
    damage(tmp_path / "checkpoint" / "step0000000014")
    parts = trained(0, 1, tmp_path, THREE)
    assert parts["resumed_from"] == [12]
    assert f"step0000000014: damaged ({file}), the previous one is used" in caplog.text
    assert _names(tmp_path) == ["step0000000012", "step0000000014", "stepfoo"]
    assert sorted(file.name for file in (tmp_path / "checkpoint/step0000000014").iterdir()) == [
        "identity", "shared.pt", "shared.sha256", "workers00000.pt", "workers00000.sha256",
    ]  # fmt: skip


def test_a_run_whose_checkpoints_are_all_damaged_starts_anew(
    of_two_processes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    for name in ("step0000000012", "step0000000014"):
        (tmp_path / "checkpoint" / name).mkdir(parents=True)
    whole, anew = (trained(0, 1, folder, THREE) for folder in (tmp_path / "whole", tmp_path))
    assert anew["resumed_from"] == []
    assert "no checkpoint is undamaged, the training starts anew" in caplog.text
    assert np.array_equal(anew["rows"], whole["rows"])
    assert _names(tmp_path) == ["step0000000012", "step0000000014"]


def test_a_process_killed_while_it_deletes_a_checkpoint_leaves_no_half_of_it(
    of_two_processes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(of_two_processes / "checkpoint", tmp_path / "checkpoint")

    def killed(folder: Path, ignore_errors: bool = False) -> None:
        if folder.exists():
            next(folder.iterdir()).unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            resume(make_session(tmp_path, seed=4, **THREE))  # another configuration, whose checkpoints are deleted
    assert _names(tmp_path) == ["step0000000012", "step0000000014.deleted"]
    session = make_session(tmp_path, **THREE)
    resume(session)
    assert session.resumed_from == [12]
    assert _names(tmp_path) == ["step0000000012"]


def test_names_are_on_disk_before_anybody_relies_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file is synced, then named, then its folder is synced."""
    calls: list[str] = []
    monkeypatch.setattr(files.os, "fsync", lambda handle: calls.append(os.readlink(f"/proc/self/fd/{handle}")))
    monkeypatch.setattr(files.os, "replace", lambda *paths: calls.append("replace"))
    files.write_text(tmp_path / "file", "content")
    assert [Path(call).name[:6] for call in calls] == [".file.", "replac", tmp_path.name[:6]]
    calls.clear()
    files.write_text(tmp_path / "file", "that may be lost", lasting=False)
    assert calls == ["replace"]


@pytest.mark.parametrize("changed", ["configuration", "format"])
def test_checkpoint_of_another_configuration_or_format_is_not_taken(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    trained(0, 1, tmp_path, {})
    if changed == "format":
        monkeypatch.setattr("resync.runs.train.build.FORMAT", "another")
    session = make_session(tmp_path, **{"seed": 4} if changed == "configuration" else {})
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


def test_only_the_newest_checkpoints_are_kept(of_two_processes: Path, tmp_path: Path):
    newest = ["step0000000012", "step0000000014"]
    assert _names(of_two_processes) == newest
    shutil.copytree(of_two_processes / "checkpoint", tmp_path / "checkpoint")
    (tmp_path / "checkpoint/step0000000009").mkdir()  # of a process that was killed before it could delete it
    resume(make_session(tmp_path, **THREE))
    assert _names(tmp_path) == newest


def test_a_run_that_continues_within_its_first_step_is_not_evaluated_again(tmp_path: Path):
    changes = VARIANTS["async_local_sgd"]
    whole = trained(0, 1, tmp_path / "whole", changes)
    trained_until(0, 1, tmp_path / "parts", changes, 0)
    parts = trained(0, 1, tmp_path / "parts", changes)
    assert parts["resumed_from"] == [0]
    steps, before = ([row["step"] for row in found["log"]["metrics.csv"]] for found in (parts, whole))
    assert steps == before[1:]


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644)])
def test_files_have_the_permissions_of_the_umask(mask: int, mode: int, tmp_path: Path):
    before = os.umask(mask)
    try:
        files.write_text(tmp_path / "file", "content")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_tables_do_not_follow_a_link(tmp_path: Path):
    """A link of that name may lead to a file of somebody else."""
    (tmp_path / "precious").write_text("precious")
    for name in ("metrics.csv", "steps.csv"):
        (tmp_path / f"{name}.partial").symlink_to(tmp_path / "precious")
    trained(0, 1, tmp_path, {})
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"every_steps": 6}, [6, 12, 14]),  # within rounds of 4
        ({"every_epochs": 1}, [7, 14]),
        ({"every_rounds": 2}, [8, 14]),
        ({"every_minutes": 1e-9}, [5, 10, 14]),  # at multiples of log.every_steps
        ({"every_minutes": None}, [14]),
        ({"every_steps": 6, "every_epochs": 1}, [6, 7, 12, 14]),
        ({"keep": 1, "keep_epochs": [0, 0.75]}, [0, 5, 14]),
        ({"keep": 1, "keep_epochs": [2], "every_steps": 4}, [12, 14]),
    ],
)
def test_checkpoints_are_written_by_rounds_steps_epochs_or_minutes(settings, expected, tmp_path: Path):
    run = make_run(tmp_path, **VARIANTS["local"] | {"checkpoint": {"keep": 9} | settings})
    assert train(run, tmp_path)
    assert _names(tmp_path) == [f"step{step:010d}" for step in expected]


def test_a_checkpoint_is_kept_with_its_averaged_model(tmp_path: Path):
    session = make_session(tmp_path, **VARIANTS["local"] | {"checkpoint": {"keep": 1, "keep_epochs": [1, 1.5]}})
    train_to_end(session)
    assert _names(tmp_path) == ["step0000000007", "step0000000010", "step0000000014"]
    model = torch.load(tmp_path / "checkpoint/step0000000010/model.pt", weights_only=True)
    rows = _rows(tmp_path / "checkpoint/step0000000010")
    torch.testing.assert_close(parameters_to_vector(model.values()), torch.from_numpy(rows).mean(0))


def test_what_is_kept_changes_nothing_of_the_result(tmp_path: Path):
    changes = VARIANTS["batch_norm"] | {"evaluation": {"bn_batches": 3, "every_epochs": 1}}
    plain = trained(0, 1, tmp_path / "plain", changes)
    kept = trained(0, 1, tmp_path / "kept", changes | {"checkpoint": {"keep_epochs": [0, 0.5, 1.5]}})
    assert np.array_equal(kept["rows"], plain["rows"])
    assert [row["val_loss"] for row in kept["log"]["metrics.csv"]] == [
        row["val_loss"] for row in plain["log"]["metrics.csv"]
    ]


def test_killed_rank_then_the_same_command_gives_the_same_bits(tmp_path: Path):
    """kill -9 of one of two processes in mid-run, through the launcher."""
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
    with launched(folder) as first:
        until(lambda: checkpoints(folder), first)
        ranks = first.children()
        assert len(ranks) == 2
        ranks[1].kill()
        assert code_of(first) != 0
        assert not any(rank.is_running() for rank in ranks)
    assert not (folder / "summary.json").exists()
    assert finish(folder) == 0, (folder / "launch.log").read_text()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["resumed_from"]
    rows = np.concatenate([rank["rows"] for rank in whole])
    assert np.array_equal(_rows(checkpoints(folder)[-1]), rows)
    assert summary["parameters_sha256"] == hashlib.sha256(_mean_over_processes(rows).tobytes()).hexdigest()


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoint").iterdir())


def _rows(checkpoint: Path) -> np.ndarray:
    parts = sorted(checkpoint.glob("workers*.pt"))
    states = [state for file in parts for state in torch.load(file, weights_only=True)["states"]]
    return torch.stack([state["workers"]["rows"] for state in states]).numpy()


def _mean_over_processes(rows: np.ndarray) -> np.ndarray:
    """The mean of four rows in two processes, in the order of its sums."""
    return (torch.from_numpy(rows[:2]).sum(0) + torch.from_numpy(rows[2:]).sum(0)).div(4).numpy()


def _continued_with_buckets(rank: int, world_size: int, folder: Path) -> bool:
    changes = {"model": {"name": "mlp", "hidden": [700, 700]}, "processes": world_size}
    whole = trained(rank, world_size, folder / "whole", changes)
    trained_until(rank, world_size, folder / "parts", changes, 5)
    return np.array_equal(trained(rank, world_size, folder / "parts", changes)["rows"], whole["rows"])


def test_the_buckets_of_ddp_are_those_of_the_first_step(tmp_path: Path):
    """Four processes add up four numbers in an order that depends on where in a bucket they lie."""
    assert all(run_processes(4, _continued_with_buckets, tmp_path))
