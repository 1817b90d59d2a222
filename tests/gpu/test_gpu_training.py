"""Training on the device: the CPU's parameters for every algorithm, precisions, options for speed, resuming."""

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import CNN_WITH_BATCH_NORM, VARIANTS, make_run, make_session, trained, trained_until

from resync.runs.train import train

TOLERANCE = 1e-4
# In half precision a product is rounded where another order of its sums puts it: a thousand times as far.
HALF_TOLERANCE = 2e-3
LOCAL = {"sync": {"name": "local", "period": {"rule": "constant", "h": 4}}}
SHORT = {"epochs": 1, "steps_per_epoch": 4, "schedule": {"name": "constant", "lr": 0.1}}
RESUMED = [
    "allreduce_fp16", "allreduce_adamw", "local_label_noise_fp16", "sgp", "osgp_stale_two_peers", "slowmo", "diloco",
    "palsgd", "batch_norm", "translation",
]  # fmt: skip


@cache
def variant(name: str) -> dict[str, Any]:
    """The changes of a variant; without what draws random numbers on the device, or needs another package."""
    changes = dict(VARIANTS[name])
    if "translation" in name:
        changes["model"] = changes["model"] | {"dropout": 0.0}
        if find_spec("sacrebleu") is None:
            changes["evaluation"] = {key: value for key, value in changes["evaluation"].items() if key != "beam_search"}
    return changes


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_ends_with_the_parameters_of_the_cpu(name: str, device: torch.device, tmp_path: Path):
    changes = variant(name)
    here, cpu = (trained(0, 1, tmp_path / each, changes | {"device": each}) for each in (device.type, "cpu"))
    tolerance = HALF_TOLERANCE if changes.get("precision") == "fp16" else TOLERANCE
    np.testing.assert_allclose(here["rows"], cpu["rows"], rtol=0, atol=tolerance)
    assert (here["bytes_sent"], here["rounds"]) == (cpu["bytes_sent"], cpu["rounds"])
    losses, expected = ([row["val_loss"] for row in each["log"]["metrics.csv"]] for each in (here, cpu))
    assert losses == pytest.approx(expected, rel=10 * tolerance)


@pytest.mark.parametrize("name", ["allreduce_clipped_micro_batches", "local_adamw", "sgp", "batch_norm_members"])
def test_stacked_workers_end_with_the_parameters_of_the_cpu(name: str, device: torch.device, tmp_path: Path):
    here, cpu = (
        trained(0, 1, tmp_path / engine, variant(name) | {"device": kind, "engine": {"name": engine}})
        for kind, engine in ((device.type, "stacked"), ("cpu", "serial"))
    )
    np.testing.assert_allclose(here["rows"], cpu["rows"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_has_the_bits_of_one_that_was_left_alone(name: str, device: torch.device, tmp_path: Path):
    changes = VARIANTS[name] | {"device": device.type}
    if "evaluation" in variant(name):
        changes["evaluation"] = variant(name)["evaluation"]
    whole = trained(0, 1, tmp_path / "whole", changes)
    trained_until(0, 1, tmp_path / "parts", changes, 5)
    parts = trained(0, 1, tmp_path / "parts", changes)
    assert parts["resumed_from"] == [5]
    assert np.array_equal(parts["rows"], whole["rows"])


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_a_whole_run_in_every_precision(precision: str, device: torch.device, tmp_path: Path):
    """From run.yaml to summary.json, as `resync train` does it."""
    results = {}
    for of, where in ((precision, device.type), ("fp32", "cpu")):
        out = tmp_path / f"{of}-{where}"
        assert train(make_run(out, precision=of, device=where, **LOCAL), out)
        results[of, where] = json.loads((out / "summary.json").read_text())
    here, exact = results[precision, device.type], results["fp32", "cpu"]
    assert (here["status"], here["steps"]) == ("finished", 14)
    assert here["final"]["val_loss"] == pytest.approx(exact["final"]["val_loss"], rel=0.05)
    assert here["best"]["train_loss"] == pytest.approx(exact["best"]["train_loss"], rel=0.05)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    assert here["launch"]["device"] == name
    assert here["seconds"]["evaluation"] > 0


@pytest.mark.parametrize("optimizer", [{"name": "sgd", "momentum": 0.9, "nesterov": True}, {"name": "adamw"}])
def test_a_fused_optimizer_steps_as_a_plain_one(optimizer: dict[str, Any], device: torch.device, tmp_path: Path):
    session = make_session(tmp_path, optimizer=optimizer | {"weight_decay": 0.01}, device=device.type)
    ours = session.optimizer
    assert ours.defaults["fused"]
    rows = session.workers.rows
    copied = torch.nn.Parameter(rows.detach().clone())
    settings = {key: value for key, value in ours.defaults.items() if key not in ("fused", "foreach")}
    plain_class = torch.optim.SGD if optimizer["name"] == "sgd" else torch.optim.AdamW
    known = plain_class.__init__.__code__.co_varnames
    plain = plain_class([copied], **{key: settings[key] for key in settings if key in known}, foreach=False)
    for step in range(3):
        gradient = torch.sin(torch.arange(rows.numel(), device=device) + step).reshape(rows.shape)
        rows.grad.copy_(gradient)
        copied.grad = gradient.clone()
        for each in (ours, plain):
            each.param_groups[0]["lr"] = 0.1
            each.step()
    torch.testing.assert_close(rows.detach(), copied.detach(), rtol=0, atol=1e-6)
    assert all(value.device.type == device.type for value in ours.state[rows].values() if value.dim())


def test_channels_last_leaves_the_result_alone(device: torch.device, tmp_path: Path):
    losses = [
        trained(0, 1, tmp_path / name, CNN_WITH_BATCH_NORM | SHORT | more | {"device": device.type})["log"][
            "metrics.csv"
        ]
        for name, more in (("a", {}), ("b", {"memory_format": "channels_last"}))
    ]
    plain, fast = ([(row["train_loss"], row["val_loss"]) for row in rows] for rows in losses)
    for one, other in zip(plain, fast, strict=True):
        assert other == pytest.approx(one, rel=1e-3, nan_ok=True)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_run_ends_as_another(mode: str, device: torch.device, tmp_path: Path):
    if device.type == "cpu":
        pytest.skip("on a CPU torch.compile is tested without its compiler, which takes minutes")
    changes = LOCAL | SHORT | {"device": device.type}
    plain, fast = (trained(0, 1, tmp_path / name, changes | more)["rows"]
                   for name, more in (("a", {}), ("b", {"compile": mode})))  # fmt: skip
    np.testing.assert_allclose(fast, plain, rtol=0, atol=TOLERANCE)
