"""How a gradient is taken: label noise, micro-batches, clipping, number formats and the scale of the loss."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import make_session, trained
from torch import nn

from resync.base.settings.options import options_of
from resync.runs.train.label_noise import LabelNoise
from resync.runs.train.loop import train_step, train_to_end
from resync.runs.train.losses import Diverged
from resync.runs.train.objective import Classification
from resync.workers import optim
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.engine import Engine, EngineParts, LossScales
from resync.workers.engine.members import Members
from resync.workers.engine.settings import LossScale
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers

ONE_STEP = {"epochs": 1, "steps_per_epoch": 1, "schedule": {"name": "constant", "lr": 0.1}}
LOCAL = {"sync": {"name": "local", "period": {"rule": "constant", "h": 4}}}


def test_label_noise_keeps_a_share_and_draws_the_rest_from_the_other_classes():
    targets = torch.arange(10).repeat(2, 5_000)
    _, noisy = LabelNoise(0.3, 10, seed=1)(targets, targets, step=7, first_worker=0)
    kept = (noisy == targets).double().mean().item()
    assert kept == pytest.approx(0.7, abs=0.01)
    offsets = torch.bincount(((noisy - targets) % 10)[noisy != targets], minlength=10)
    assert offsets[0] == 0
    assert offsets[1:].max() < 1.1 * offsets[1:].min()


def test_label_noise_is_a_function_of_seed_worker_and_step():
    targets = torch.zeros(4, 1_000, dtype=torch.int64)

    def noise(targets: torch.Tensor, step: int, first_worker: int, seed: int = 1) -> torch.Tensor:
        return LabelNoise(0.5, 10, seed)(targets, targets, step, first_worker)[1]

    all_workers = noise(targets, 3, 0)
    assert torch.equal(noise(targets[2:], 3, 2), all_workers[2:])
    for other in (noise(targets, 4, 0), noise(targets, 3, 0, seed=2), all_workers.roll(1, 0)):
        assert not torch.equal(other, all_workers)


def test_label_noise_reaches_the_training_loss_and_not_the_evaluation(tmp_path: Path):
    clean = trained(0, 1, tmp_path / "clean", {})["log"]["metrics.csv"]
    noisy = trained(0, 1, tmp_path / "noisy", {"loss": {"label_noise": 0.5}})["log"]["metrics.csv"]
    assert noisy[0]["val_loss"] == clean[0]["val_loss"]
    assert noisy[-1]["train_loss"] > clean[-1]["train_loss"]


def test_micro_batches_add_up_to_the_gradient_of_the_batch(tmp_path: Path):
    whole = trained(0, 1, tmp_path / "whole", LOCAL)["rows"]
    parts = trained(0, 1, tmp_path / "parts", LOCAL | {"micro_batch_size": 4})["rows"]
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize("averaged", [True, False])
def test_the_gradient_that_the_optimizer_gets_is_clipped(tmp_path: Path, averaged: bool):
    """AllReduce clips the average of the workers' gradients, a local method each worker's own."""
    changes = ONE_STEP | ({} if averaged else LOCAL)
    free, clipped = (
        make_session(tmp_path / str(limit), clip_norm=limit, **changes, optimizer={"name": "sgd"})
        for limit in (1e6, 0.05)
    )
    for session in (free, clipped):
        inputs, targets = next(session.data.batches(session.sampler, 0, 0, session.transport.local))
        train_step(session, inputs, targets)
    norms = free.workers.grads.norm(dim=1, keepdim=True)
    assert norms.min() > 0.05
    torch.testing.assert_close(clipped.workers.grads, free.workers.grads * 0.05 / norms)
    assert len(norms.unique()) == (1 if averaged else 4)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_only_matrices_decay_as_with_two_parameter_groups_of_torch(name: str):
    """Three steps against torch's own optimizer with a group without decay."""
    torch.manual_seed(0)
    # No bias before the normalisation: its gradient is rounding, of which AdamW would make a whole step.
    model = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    reference = copy.deepcopy(model)
    options = {"weight_decay": 0.1, "decay": "matrices"} | ({"momentum": 0.9} if name == "sgd" else {})
    workers = Workers(model, 2)
    ours = optim.build(options_of("optim", name)(**options), workers)
    transport = Transport(Members(2), Clocks(torch.device("cpu")))
    engine = Engine(EngineParts(transport, workers, ours, Classification().loss))
    matrices = [reference[0].weight, reference[3].weight]
    others = [reference[3].bias, *reference[1].parameters()]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    theirs = torch.optim.SGD(groups, momentum=0.9) if name == "sgd" else torch.optim.AdamW(groups)
    for _ in range(3):
        images, labels = torch.randn(5, 1, 4, 4), torch.randint(3, (5,))
        engine.gradients([images] * 2, [labels] * 2)
        theirs.zero_grad()
        nn.functional.cross_entropy(reference(images), labels).backward()
        for group in theirs.param_groups:
            group["lr"] = 0.1
        theirs.step()
        engine.step(lr=0.1)
    expected = nn.utils.parameters_to_vector(reference.parameters()).expand(2, -1)
    torch.testing.assert_close(workers.rows.data, expected, rtol=0, atol=1e-6)


def test_a_gradient_below_the_limit_is_left_alone():
    workers = Workers(nn.Linear(2, 1, bias=False), 2)
    workers.grads.copy_(torch.tensor([[0.3, 0.4], [3.0, 4.0]]))
    workers.clip_gradients(1.0)
    torch.testing.assert_close(workers.grads, torch.tensor([[0.3, 0.4], [0.6, 0.8]]))


def test_half_precision_trains_like_float32(tmp_path: Path):
    long = {"epochs": 6, "steps_per_epoch": 20}
    full, *halves = (trained(0, 1, tmp_path / name, long | {"precision": name}) for name in ("fp32", "bf16", "fp16"))
    exact = full["log"]["metrics.csv"][-1]["val_top1"]
    assert exact > 85
    for half in halves:
        assert half["log"]["metrics.csv"][-1]["val_top1"] == pytest.approx(exact, abs=3)
        assert half["rows"].dtype == np.float32
        assert np.abs(half["rows"] - full["rows"]).max() > 1e-5


class Overflowing(nn.Module):
    """A model whose gradient is infinite where the scale of the loss exceeds a limit."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.weight.register_hook(lambda gradient: torch.where(gradient.abs() > limit, torch.inf, gradient))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ self.weight


def forward(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return model(inputs).mean()


def take(scale: LossScale, limit: float, steps: int = 1) -> tuple[torch.Tensor, torch.Tensor, LossScales]:
    """Losses [1], gradient [1, 3] and scales after some steps on ones, whose gradient without scale is one."""
    workers, transport = Workers(Overflowing(limit), 1), Transport(Members(1), Clocks(torch.device("cpu")))
    optimizer = torch.optim.SGD([workers.rows], lr=0.1)
    engine = Engine(EngineParts(transport, workers, optimizer, forward, micro_batches=2, loss_scale=scale))
    for _ in range(steps):
        losses = engine.gradients(torch.ones(1, 4, 3), torch.ones(1, 4)).losses
    assert engine.loss_scales
    return losses, workers.grads, engine.loss_scales


@pytest.mark.parametrize(
    ("settings", "limit", "steps", "scale", "good_steps"),
    [
        ({"initial": 1024.0}, 100.0, 1, 128.0, 1),  # taken again: each of two micro-batches adds half of the scale
        ({"initial": 4.0, "interval": 3}, 1e9, 7, 16.0, 1),
        ({"initial": 1024.0, "interval": 2}, 100.0, 1, 128.0, 1),  # an overflow begins a new interval
    ],
)
def test_the_scale_follows_from_overflows(settings, limit: float, steps: int, scale: float, good_steps: int):
    losses, gradient, scales = take(LossScale(**settings), limit, steps)
    assert (scales.scales.tolist(), scales.good_steps.tolist()) == ([scale], [good_steps])
    assert losses.tolist() == [3.0]
    assert torch.equal(gradient, torch.ones(1, 3))


def test_a_gradient_that_no_scale_saves_is_a_diverged_run():
    losses, _, scales = take(LossScale(initial=1024.0, retries=3), limit=0.0)
    assert losses.isnan().all()
    assert scales.scales.tolist() == [1024 * 0.5**4]  # the first time, and three times again


def test_a_worker_whose_loss_is_nan_stops_an_fp16_run_of_all(tmp_path: Path):
    session = make_session(tmp_path, precision="fp16", loss_scale={"retries": 2})
    session.workers.models[1].get_parameter("1.weight").data.fill_(torch.nan)
    train_step(session, *next(session.data.batches(session.sampler, 0, 0, session.transport.local)))
    with pytest.raises(Diverged, match="not finite at step 1 on worker 1"):
        session.losses.check(session.transport)


CNN = {"model": {"name": "cnn", "widths": [4, 8], "norm": "group", "groups": 2}}


@pytest.mark.parametrize("option", [{"memory_format": "channels_last"}, {"compile": "default"}])
def test_options_for_speed_leave_the_result_alone(
    tmp_path: Path, option: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    compiled = []

    def traced(module: nn.Module, mode: str) -> nn.Module:
        """Everything that torch.compile does but the translation to C++, which takes minutes."""
        compiled.append(mode)
        return torch_compile(module, backend="aot_eager")

    torch_compile = torch.compile
    monkeypatch.setattr(torch, "compile", traced)
    changes = CNN | LOCAL | ONE_STEP | {"workers": 2, "batch_size": 32, "steps_per_epoch": 4}
    plain, fast = (make_session(tmp_path / name, **changes | more) for name, more in (("a", {}), ("b", option)))
    for session in (plain, fast):
        train_to_end(session)
    for model, other in zip(plain.workers.models, fast.workers.models, strict=True):
        for name, value in model.state_dict().items():
            torch.testing.assert_close(other.state_dict()[name], value, rtol=1e-4, atol=1e-5, msg=name)
    assert compiled == [option["compile"]] * 2 if "compile" in option else not compiled
    if "memory_format" in option:
        weights = [value for value in fast.workers.models[0].parameters() if value.dim() == 4 and value.shape[1] > 1]
        assert weights
        assert all(value.is_contiguous(memory_format=torch.channels_last) for value in weights)
