"""Hutchinson's estimate against the exact Hessian of a model that is small enough for it."""

from itertools import product
from types import SimpleNamespace

import pytest
import torch
from runs import make_session
from torch import nn
from torch.func import functional_call, hessian

from resync.runs.train.evaluate import consensus
from resync.runs.train.objective import Classification
from resync.runs.train.sharpness import _curvature, sharpness
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.members import Members
from resync.workers.engine.transport import Transport

INPUTS = torch.tensor([[0.5, -1.0], [2.0, 0.3], [-0.7, 0.9]])
TARGETS = torch.tensor([0, 1, 1])


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 2, bias=False), nn.Tanh(), nn.Linear(2, 2, bias=False))


def exact_trace(model: nn.Module) -> float:
    names, tensors = zip(*model.named_parameters(), strict=True)

    def loss(*parameters):
        logits = functional_call(model, dict(zip(names, parameters, strict=True)), INPUTS)
        return nn.functional.cross_entropy(logits, TARGETS)

    blocks = hessian(loss, argnums=tuple(range(len(tensors))))(*tensors)
    return sum(blocks[i][i].reshape(each.numel(), -1).trace().item() for i, each in enumerate(tensors))


def test_the_mean_over_all_signs_is_the_trace(model: nn.Module):
    signs = torch.tensor(list(product([-1.0, 1.0], repeat=8)))
    found = [
        _curvature(model, Classification().loss(model, INPUTS, TARGETS), [z[:4].view(2, 2), z[4:].view(2, 2)]).item()
        for z in signs
    ]
    assert sum(found) / len(found) == pytest.approx(exact_trace(model), rel=1e-5)


def test_more_batches_come_closer_and_do_not_change_the_model(model: nn.Module):
    data = SimpleNamespace(statistics_batch=lambda seed, step, index, size: (INPUTS, TARGETS))
    before = [each.clone() for each in model.parameters()]
    found = [
        sharpness(model, Classification(), data, Transport(Members(1), Clocks(torch.device("cpu"))), 0, 5, n, 3)
        for n in (1, 1, 2000)
    ]
    assert found[0] == found[1]
    assert found[2] == pytest.approx(exact_trace(model), rel=0.05)
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    assert all(each.grad is None for each in model.parameters())


def test_attention_has_a_sharpness(tmp_path):
    vit = {"name": "vit", "patch": 2, "dim": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
    session = make_session(tmp_path, model=vit)
    of = session.objective, session.data, session.transport
    with consensus(session) as model:
        assert sharpness(model, *of, seed=0, step=0, batches=2, batch_size=8) > 0
