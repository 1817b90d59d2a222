"""The engine `stacked` beside the engine `serial`: the same gradients, and the same bits for any number of workers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import CNN_WITH_BATCH_NORM, VARIANTS, make_run, trained
from torch import nn

from resync.base.settings.options import options_of
from resync.runs.train.language_model import LanguageModel
from resync.runs.train.objective import Classification
from resync.runs.train.run import train
from resync.tasks import models
from resync.tasks.models.options.base import ModelOptions
from resync.workers import optim
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.engine import Engine, EngineParts, Stacking
from resync.workers.engine.members import Members
from resync.workers.engine.stacked import LARGEST_STACK, Stacked, of_a_layer, stacking_pays
from resync.workers.engine.stacked_layers import Stack
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers

WORKERS, BATCH, CLASSES = LARGEST_STACK + 1, 6, 7
RESNET = {"depth": 8, "width": 8}
MODELS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "mlp": ("mlp", {"hidden": (16, 9)}, (1, 8, 8)),
    "cnn": ("cnn", {"widths": (8, 10), "groups": 2}, (3, 9, 9)),
    "cnn_without_norm": ("cnn", {"widths": (5, 6), "norm": "none"}, (2, 8, 8)),
    "cnn_batch_norm": ("cnn", {"widths": (6, 10), "norm": "batch"}, (1, 8, 8)),
    "resnet_group_norm": ("cifar_resnet", RESNET | {"norm": "group", "activation": "silu"}, (3, 16, 16)),
    "resnet_batch_norm": ("cifar_resnet", RESNET, (3, 16, 16)),
    "vit": ("vit", {"patch": 4, "dim": 12, "depth": 2, "heads": 3, "mlp_dim": 20}, (3, 8, 8)),
    "gpt": ("gpt", {"layers": 2, "dim": 12, "heads": 3}, (5,)),
}


def engine_of(
    name: str, first: int, number: int, stacked: bool, micro_batches: int = 1, memory_format: Any = None
) -> Engine:
    """An engine for `number` of the workers from `first` on, all of which have weights of their own."""
    module, given, shape = MODELS[name]
    options = options_of("models", module)(**given)
    assert isinstance(options, ModelOptions)
    assert options.form is not None
    torch.manual_seed(0)
    model = models.build(options, shape, CLASSES, seed=1)
    model = model.to(memory_format=memory_format) if memory_format else model
    workers = Workers(model, number)
    shifts = torch.randn(WORKERS, workers.num_parameters, generator=torch.Generator().manual_seed(1))
    workers.rows.data.add_(0.1 * shifts[first : first + number])
    optimizer = optim.build(options_of("optim", "sgd")(), workers)
    task = LanguageModel if options.task == "language_model" else Classification
    objective = task(label_smoothing=0.1, passes=micro_batches)
    transport = Transport(Members(number), Clocks(torch.device("cpu")))
    stacking = Stacking(options.form, objective.training_losses)
    parts = EngineParts(
        transport, workers, optimizer, objective.training_loss, micro_batches=micro_batches, stacking=stacking
    )
    return Stacked(parts) if stacked else Engine(parts)


def samples(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of all workers."""
    generator = torch.Generator().manual_seed(2)
    if name.startswith("gpt"):
        return torch.randint(CLASSES, (2, WORKERS, BATCH, *MODELS[name][2]), generator=generator).unbind()
    inputs = torch.randn(WORKERS, BATCH, *MODELS[name][2], generator=generator)
    return inputs, torch.randint(CLASSES, (WORKERS, BATCH), generator=generator)


def found_by(engine: Engine, name: str, first: int = 0) -> dict[str, torch.Tensor]:
    """Losses and metrics, gradients and buffers after two passes."""
    part = slice(first, first + engine.workers.num_local)
    inputs, targets = (each[part] for each in samples(name))
    losses, further = [engine.gradients(inputs, targets) for _ in range(2)][-1]
    state = engine.workers.state_dict()["workers"]
    metrics = {} if further is None else {"metrics": further}
    return {"losses": losses, "gradients": engine.workers.grads.clone()} | metrics | state


@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_losses_and_buffers_are_those_of_the_serial_engine(name: str, micro_batches: int):
    expected, found = (found_by(engine_of(name, 0, WORKERS, stacked, micro_batches), name) for stacked in (False, True))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("name", MODELS)
def test_a_worker_has_the_same_bits_beside_any_number_of_others(name: str):
    whole = found_by(engine_of(name, 0, WORKERS, stacked=True), name)
    for first, number in ((0, 1), (2, 2), (4, 5), (WORKERS - 1, 1)):
        part = found_by(engine_of(name, first, number, stacked=True), name, first)
        for key, value in part.items():
            assert torch.equal(value, whole[key][first : first + number]), (key, first, number)


def test_a_gradient_does_not_remain_for_the_next_step():
    """Also where the rows are one matrix without gaps, so that nothing needs to be copied."""
    workers = Workers(nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.Flatten()), 3)
    stack = Stack(workers.models, workers.rows.data, workers.grads, "channels")
    found = []
    for _ in range(2):
        stack.load()
        stack(torch.ones(3, 2, 1, 3, 3)).sum().backward()
        stack.store()
        found.append(workers.grads.clone())
    assert torch.equal(*found)
    assert found[0].abs().min() > 0


def test_images_may_lie_with_their_channels_last():
    expected, found = (
        found_by(engine_of("resnet_group_norm", 0, 3, stacked, memory_format=torch.channels_last), "resnet_group_norm")
        for stacked in (False, True)
    )
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-5)


COMPARED = [
    "allreduce_clipped_micro_batches", "local_adamw", "sgp_weighted", "osgp_stale_two_peers", "adpsgd",
    "diloco", "batch_norm", "batch_norm_members",
]  # fmt: skip
MIXED = {"loss": {"mixup": 0.5, "label_noise": 0.1, "label_smoothing": 0.1}, "micro_batch_size": 8}


@pytest.mark.parametrize("name", [*COMPARED, "mixup"])
def test_a_run_ends_with_the_weights_and_the_log_of_the_serial_engine(name: str, tmp_path: Path):
    changes = VARIANTS.get(name, MIXED)
    serial, stacked = (
        trained(0, 1, tmp_path / each, changes | {"engine": {"name": each}}) for each in ("serial", "stacked")
    )
    np.testing.assert_allclose(stacked["rows"], serial["rows"], rtol=0, atol=1e-5)
    for table, rows in serial["log"].items():
        for found, expected in zip(stacked["log"][table], rows, strict=True):
            numbers = {key: value for key, value in expected.items() if "seconds" not in key}
            assert {key: found[key] for key in numbers} == pytest.approx(numbers, rel=1e-4, abs=1e-4, nan_ok=True)


def test_bfloat16_is_possible(tmp_path: Path):
    changes = CNN_WITH_BATCH_NORM | {"precision": "bf16", "evaluation": {"bn_batches": 3}}
    serial, stacked = (
        trained(0, 1, tmp_path / each, changes | {"engine": {"name": each}}) for each in ("serial", "stacked")
    )
    np.testing.assert_allclose(stacked["rows"], serial["rows"], rtol=0, atol=0.02)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)), "a layer Dropout .* in the form samples"),
        (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), "a layer BatchNorm1d .* in the form samples"),
        (nn.Bilinear(3, 4, 2), "a layer Bilinear"),
    ],
)
def test_a_model_with_other_layers_is_refused(model: nn.Module, message: str):
    workers = Workers(model, 2)
    with pytest.raises(ValueError, match=f"engine stacked: cannot compute {message}.*, allowed: engine serial"):
        Stack(workers.models, workers.rows.data, workers.grads, "samples")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "fp16"}, "found stacked with precision fp16, allowed: auto, serial"),
        (VARIANTS["translation"], "found stacked with model transformer, allowed: auto, serial"),
        (VARIANTS["language_model"], "found stacked with model gpt with dropout, allowed: auto, serial"),
        ({"gpus_per_worker": 2, "processes": 8}, "found stacked with 8 processes for 4 workers, allowed: auto, serial"),
    ],
)
def test_settings_that_it_does_not_support_are_errors(changes: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(ValueError, match=message):
        make_run(tmp_path, **changes, engine={"name": "stacked"})


def test_stacking_pays_for_small_layers_on_the_cpu():
    small, wide = nn.Linear(8, 4), nn.Linear(1024, 1024)
    assert of_a_layer(small, torch.zeros(1, 8)) == (6 * 8 * 4, 8 * 4)
    assert of_a_layer(nn.Conv2d(2, 3, 3, padding=1), torch.zeros(1, 2, 5, 5)) == (6 * 2 * 3 * 9 * 25, 2 * 3 * 9)
    given = Stacking("samples", Classification().training_losses, torch.zeros(1, 8), 16)
    assert stacking_pays(given, small)
    assert (small.training, len(small._forward_hooks)) == (True, 0)  # it is as it was, though nothing was copied
    assert not stacking_pays(given, small.to("meta"))
    assert not stacking_pays(replace(given, samples=10**6), nn.Linear(8, 4))
    assert not stacking_pays(replace(given, sample=None), nn.Linear(8, 4))
    assert not stacking_pays(replace(given, sample=torch.zeros(1, 1024), samples=1), wide)


@pytest.mark.parametrize(
    ("changes", "engine"),
    [
        ({}, "stacked"),
        (VARIANTS["translation"], "serial"),
    ],
)
def test_auto_says_what_it_has_chosen(changes: dict[str, Any], engine: str, tmp_path: Path, capsys):
    short = {"epochs": 1, "steps_per_epoch": 1, "schedule": {"name": "constant", "lr": 0.1}}
    run = make_run(tmp_path / "config", **changes | short)
    assert train(run, tmp_path / "out")
    assert f"engine {engine} (chosen by auto)\n" in capsys.readouterr().out
