"""Muon over rows against its recursion written out for each matrix."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import resync
from resync.base.settings.options import options_of
from resync.tasks.models import build as build_model
from resync.workers import optim
from resync.workers.engine.workers import Workers
from resync.workers.optim.muon import of_model
from resync.workers.optim.options import Muon

LR, DECAY = 0.02, 0.1


def small_model() -> nn.Module:
    """Two hidden matrices of one shape and a tall one, between what AdamW steps: embedding, norm, biases, output."""
    torch.manual_seed(0)
    layers = [nn.Embedding(7, 4), nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 4, bias=False), nn.Linear(4, 6)]
    return nn.Sequential(*layers, nn.Linear(6, 7)).double()


HIDDEN = {"1.weight", "3.weight", "4.weight"}
FIVE = [
    (4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
]  # fmt: skip


def newton_schulz(matrix: np.ndarray) -> np.ndarray:
    """One matrix, in the powers of the sheet: X = a X + b (X X^T) X + c (X X^T)^2 X."""
    x = matrix / (np.sqrt((matrix**2).sum()) + 1e-8)
    x = x.T if matrix.shape[0] > matrix.shape[1] else x
    for a, b, c in FIVE:
        square = x @ x.T
        x = a * x + b * square @ x + c * square @ square @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def muloco(w: np.ndarray, gradients: list[np.ndarray]) -> np.ndarray:
    """A matrix after some steps of the Muon of MuLoCo's code."""
    moment = np.zeros_like(w)
    for gradient in gradients:
        moment = 0.95 * moment + gradient
        w = (1 - LR * DECAY) * w - LR * np.sqrt(w.shape[0] / w.shape[1]) * newton_schulz(moment)
    return w


def stepped(options: Muon, apart: bool = False, dtype: torch.dtype = torch.float64) -> tuple[Any, Any, Any]:
    """Three workers after five steps with random gradients: by worker and parameter, its start, gradients and end."""
    workers = Workers(small_model().to(dtype), 3)
    optimizer = optim.build(options, workers, apart)
    names = [name for name, _ in workers.models[0].named_parameters()]

    def parts() -> list[dict[str, np.ndarray]]:
        values = [[each.detach().numpy().copy() for each in own] for own in workers.parameters]
        return [dict(zip(names, own, strict=True)) for own in values]

    start, gradients = parts(), []
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        workers.grads.copy_(torch.randn(workers.grads.shape, generator=generator))
        gradients.append([[each.grad.numpy().copy() for each in own] for own in workers.parameters])
        optimizer.param_groups[0]["lr"] = LR
        optimizer.step()
    of_name = [{name: [step[k][i] for step in gradients] for i, name in enumerate(names)} for k in range(3)]
    return start, of_name, parts()


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("decaying", ["all", "matrices_and_embeddings"])
def test_muon_is_its_recursion_for_every_worker_and_matrix(apart, decaying):
    options = Muon(weight_decay=DECAY, decay=decaying, others_lr=0.5)
    for start, gradients, end in zip(*stepped(options, apart), strict=True):
        for name, ours in end.items():
            if name in HIDDEN:
                wanted = muloco(start[name], gradients[name])
            else:
                parameter = nn.Parameter(torch.from_numpy(start[name].copy()))
                rate = DECAY if decaying == "all" or parameter.ndim == 2 else 0.0
                adam = torch.optim.AdamW([parameter], lr=LR / 2, betas=(0.9, 0.95), weight_decay=rate)
                for gradient in gradients[name]:
                    parameter.grad = torch.from_numpy(gradient)
                    adam.step()
                wanted = parameter.detach()
            np.testing.assert_allclose(ours, wanted, rtol=0, atol=1e-12, err_msg=name)


def test_in_bfloat16_muon_differs_by_its_rounding():
    both = (stepped(Muon(precision=name), dtype=torch.float32)[2] for name in ("float32", "bfloat16"))
    for exact, rounded in zip(*both, strict=True):
        for name in exact:
            np.testing.assert_allclose(rounded[name], exact[name], rtol=0, atol=2e-3 if name in HIDDEN else 0)
        assert any(not np.array_equal(rounded[name], exact[name]) for name in HIDDEN)


def test_muon_steps_the_hidden_matrices_of_a_model_and_nothing_else():
    tied = nn.ModuleDict({"tokens": nn.Embedding(9, 4), "hidden": nn.Linear(4, 4), "out": nn.Linear(4, 9, bias=False)})
    tied["out"].weight = tied["tokens"].weight
    functional = nn.ModuleDict({"tokens": nn.Embedding(9, 4), "a": nn.Linear(4, 8), "b": nn.Linear(8, 4)})
    classifier = build_model(options_of("models", "mlp")(hidden=[8, 8]), (6,), 3, seed=0)
    image = build_model(options_of("models", "cnn")(), (1, 8, 8), 3, seed=0)
    expected = [(tied, ["hidden.weight"]), (functional, ["a.weight", "b.weight"]), (image, [])]
    for model, hidden in [*expected, (classifier, ["1.weight", "3.weight"])]:
        workers = Workers(model, 2)
        before = workers.rows.detach().clone()
        optimizer = optim.build(Muon(others_lr=1e-9), workers)
        workers.grads.normal_(generator=torch.Generator().manual_seed(3))
        optimizer.param_groups[0]["lr"] = 0.1
        optimizer.step()
        moved = (workers.rows - before).abs() > 1e-6
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        ends = np.cumsum([0, *(parameter.numel() for parameter in workers.parameters[0])])
        parts = zip(workers.parameters[0], ends, ends[1:], strict=False)
        found = [names[id(parameter)] for parameter, first, end in parts if moved[:, first:end].any()]
        assert found == hidden


def attention_model(outputs: int) -> nn.ModuleDict:
    """Attention of torch's, a hidden layer, and a head after the embedding of 16 tokens in 8 numbers."""
    attention = {"same": nn.MultiheadAttention(8, 2), "widths": nn.MultiheadAttention(8, 2, kdim=4, vdim=6)}
    layers = {"tokens": nn.Embedding(16, 8), **attention, "hidden": nn.Linear(8, 8), "head": nn.Linear(8, outputs)}
    return nn.ModuleDict(layers)


def matrices_of(model: nn.Module, **options: Any) -> list[str]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    places = of_model(model, lr=0.1, **options).matrices.values()
    return sorted(names[id(parameter)] for each in places for parameter, _ in each)


@pytest.mark.parametrize("outputs", [16, 2])
def test_attention_of_torch_is_hidden_and_the_head_of_a_task_is_not(outputs):
    projections = [f"widths.{name}_proj_weight" for name in "qkv"]
    attention = ["same.in_proj_weight", *(f"{name}.out_proj.weight" for name in ("same", "widths")), *projections]
    assert matrices_of(attention_model(outputs)) == sorted([*attention, "hidden.weight"])


def test_the_matrices_of_muon_can_be_named():
    model = attention_model(2)
    assert matrices_of(model, matrices=iter([model.head.weight, model.hidden.weight])) == [
        "head.weight",
        "hidden.weight",
    ]
    for wrong, shape in ((model.hidden.bias, r"\[8\]"), (nn.Parameter(torch.ones(3, 2)), r"\[3, 2\]")):
        with pytest.raises(ValueError, match=rf"^matrices: found a tensor of shape {shape}, allowed: trainable"):
            of_model(model, lr=0.1, matrices=[wrong])


def test_muon_that_would_step_nothing_is_refused():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    with pytest.raises(ValueError, match=r"^Muon would step nothing: .* name its matrices \(matrices=\.\.\.\), or"):
        of_model(model, lr=0.1)


@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
def test_muon_without_gradients_moves_by_its_decay_alone(weight_decay):
    workers = Workers(small_model(), 2)
    before = workers.rows.detach().clone()
    optimizer = optim.build(Muon(weight_decay=weight_decay), workers)
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    torch.testing.assert_close(workers.rows.detach(), before * (1 - 0.1 * weight_decay), rtol=0, atol=1e-15)
    decayed = Workers(small_model(), 2)
    optimizer = optim.build(Muon(weight_decay=0.5, decay="matrices"), decayed)
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    torch.testing.assert_close(decayed.rows.detach(), before * (1 - 0.05 * decayed.matrices), rtol=0, atol=1e-15)


def test_muon_in_a_loop_of_ones_own_is_that_over_rows():
    """With a convolution in channels_last, a frozen layer, a closure, and a parameter without a gradient."""

    def awkward() -> nn.Sequential:
        torch.manual_seed(4)
        layers = [nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 5), nn.Linear(5, 5), nn.Linear(5, 4), nn.Linear(4, 2)]
        model = nn.Sequential(*layers).to(memory_format=torch.channels_last)
        model[3].requires_grad_(False)
        return model

    inputs = torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(5))
    workers, model = Workers(awkward(), 1), awkward()
    ours, theirs = optim.build(Muon(weight_decay=0.1), workers), of_model(model, lr=0.1, weight_decay=0.1)
    ours.param_groups[0]["lr"] = 0.1
    sync = resync.attach(model, theirs, resync.DiLoCo(period=100))
    for _ in range(4):
        workers.grads.zero_()
        workers.models[0](inputs).square().mean().backward()
        ours.step()

        def closure() -> torch.Tensor:
            theirs.zero_grad()
            loss = model(inputs).square().mean()
            loss.backward()
            return loss

        assert theirs.step(closure).item() > 0
        for one, other in zip(workers.models[0].parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    saved = theirs.state_dict()
    again = of_model(model, lr=0.1, weight_decay=0.1)
    again.load_state_dict(saved)
    assert [state["step"].item() for state in again.state.values()] == [4.0] * 8
    assert sync.steps == 4
    theirs.zero_grad()
    before = [parameter.clone() for parameter in model.parameters()]
    theirs.step()
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
