"""Data-parallel training by the DeepSpeed engine equals ours, for every ZeRO stage."""

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launched import code_of, forked
from processes import run_processes
from runs import adamw, make_run, trained, trained_until

from resync.runs.launch import fork
from resync.tools.cli import main

pytest.importorskip("deepspeed", reason="DeepSpeed is not installed: pip install deepspeed")

# The first scale overflows, so that gradients are computed again.
FP16 = {"precision": "fp16", "loss_scale": {"initial": 1e9, "interval": 3}}
TWO = {"workers": 2, "processes": 2}
CASES = {
    "stage0": (0, {}),
    "stage1_adamw": (1, {"optimizer": {"name": "adamw", "weight_decay": 0.05}}),
    "stage1_clipped": (1, {"clip_norm": 0.5}),
    "stage2_adamw": (2, {"optimizer": {"name": "adamw", "weight_decay": 0.05}}),
    "stage2_micro_batches": (2, {"micro_batch_size": 8}),
    "stage0_bf16": (0, {"precision": "bf16"}),
    "stage2_bf16_adamw": (2, {"precision": "bf16", "optimizer": {"name": "adamw", "weight_decay": 0.05}}),
    "stage0_fp16": (0, FP16),
    "stage1_fp16_clipped": (1, FP16 | {"clip_norm": 0.5}),
    "stage2_fp16_micro_batches": (2, FP16 | {"micro_batch_size": 8}),
}


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks ended with, by case: with torch, with DeepSpeed, and with DeepSpeed continued."""
    import_module("deepspeed")  # once for all ranks
    return run_processes(2, _all_cases, tmp_path_factory.mktemp("engines"))


def _all_cases(rank: int, world_size: int, folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    os.environ["LOCAL_RANK"] = str(rank)  # torchrun sets it, and DeepSpeed insists
    for name, (stage, changes) in CASES.items():
        ours = TWO | changes
        theirs = ours | {"engine": {"name": "deepspeed", "zero_stage": stage}}
        trained_until(rank, world_size, folder / name / "parts", theirs, 5)
        found[name] = {
            "torch": trained(rank, world_size, folder / name / "torch", ours),
            "deepspeed": trained(rank, world_size, folder / name / "deepspeed", theirs),
            "continued": trained(rank, world_size, folder / name / "parts", theirs),
        }
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_engine_ends_with_our_weights_and_our_bytes(engines, name: str):
    for rank in engines:
        ours, theirs = rank[name]["torch"], rank[name]["deepspeed"]
        # A difference in the last bit of a weight is one of 2^-11 of it where autocast rounds it to the other side.
        atol = 1e-4 if "precision" in CASES[name][1] else 1e-6
        np.testing.assert_allclose(theirs["rows"], ours["rows"], rtol=0, atol=atol)
        assert theirs["bytes_sent"] == ours["bytes_sent"]
    logged = [rank["log"]["metrics.csv"][-1] for rank in (engines[0][name]["torch"], engines[0][name]["deepspeed"])]
    for metric in ("train_loss", "val_loss", "val_top1"):
        assert logged[1][metric] == pytest.approx(logged[0][metric], abs=1e-4)


@pytest.mark.parametrize("name", ["stage0_bf16", "stage0_fp16"])
def test_half_precision_is_not_that_of_fp32(engines, name: str):
    exact, half = (engines[0][case]["deepspeed"]["rows"] for case in ("stage0", name))
    assert abs(half - exact).max() > 1e-4


@pytest.mark.parametrize("name", CASES)
def test_a_continued_run_has_the_same_bits(engines, name: str):
    for rank in engines:
        assert rank[name]["continued"]["resumed_from"] == [5]
        assert np.array_equal(rank[name]["continued"]["rows"], rank[name]["deepspeed"]["rows"])


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_one_process_ends_like_that_of_torch(precision: str, tmp_path: Path):
    import_module("deepspeed")
    found = {}
    for engine in ({"name": "deepspeed", "zero_stage": 2}, {"name": "serial"}):
        out = tmp_path / engine["name"]
        make_run(out, workers=1, precision=precision, engine=engine, **adamw())
        command = ["train", "--config", str(out / "config.yaml"), "--out", str(out)]
        with forked(main, command, log=out / "log") as process:
            assert code_of(process) == 0, (out / "log").read_text()
        found[engine["name"]] = json.loads((out / "summary.json").read_text())
    assert found["deepspeed"]["launch"]["engine"] == "deepspeed"
    ours, theirs = (found[name]["final"] for name in ("serial", "deepspeed"))
    assert theirs["val_loss"] == pytest.approx(ours["val_loss"], abs=1e-4)


def test_deepspeed_is_imported_once_for_all_forked_ranks(tmp_path: Path):
    with_it = make_run(tmp_path / "with", **TWO, engine={"name": "deepspeed"})
    assert "deepspeed" in fork.modules(with_it)
    assert "deepspeed" not in fork.modules(make_run(tmp_path / "without", **TWO))
