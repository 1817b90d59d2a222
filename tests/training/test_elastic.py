"""Workers of an elastic training that are lost, come back, or are slow: what is averaged, and what is lost."""

import os
import signal
from typing import Any

import numpy as np
import pytest
import torch
from replicas import replicas
from torch import Tensor, nn

import resync
from resync.formulas import mixing

pytest.importorskip("torchft", reason="torchft is not installed: make trainers")

NAMES = ("a", "b", "c", "d")
METHODS: dict[str, Any] = {
    "AllReduce": resync.AllReduce(),
    "LocalSGD": resync.LocalSGD(period=3),
    "QSR": resync.QSR(alpha=0.2, h_base=2),
    "SlowMo": resync.SlowMo(period=3, buffers="keep"),
    "DiLoCo": resync.DiLoCo(period=3),
    "StreamingDiLoCo": resync.StreamingDiLoCo(period=6, fragments=3, delay=1, mixing=0.5),
    "SGP": resync.SGP(topology="random"),
    "DPSGD": resync.DPSGD(topology="undirected_ring"),
}
LR, BATCH = 0.1, 8


def _model(name: str) -> nn.Module:
    """All members start from that of the first one."""
    torch.manual_seed(ord(name))
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def _batch(name: str, step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * ord(name) + step)
    return torch.randn(BATCH, 6, generator=generator), torch.randn(BATCH, 3, generator=generator)


def _back(changes: Any) -> int | None:
    """The exchange after which all members were there again."""
    full = [change.exchanges for change in changes if len(change.members) == len(NAMES)]
    return full[-1] if len(full) > 1 and len(changes[-1].members) == len(NAMES) else None


def _train(name: str, lighthouse: str, method: str) -> Any:
    """Four members; `b` kills itself before an exchange, and is started again by the test."""
    model = _model(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    of_lr = {"total_steps": 10**6, "warmup_steps": 0} if method == "QSR" else {}
    elastic = resync.Elastic(lighthouse, name, min_replicas=2, timeout=20, wait=120)
    sync = resync.attach(model, optimizer, METHODS[method], seed=3, elastic=elastic, **of_lr)
    members, mass = sync.elastic.membership, 0.0
    while not ((back := _back(members.changes)) and members.exchanges >= back + 4):
        if name == "b" and sync.steps >= 4 and not back and len(members.members) == len(NAMES):
            os.kill(os.getpid(), signal.SIGKILL)
        inputs, targets = _batch(name, sync.steps)
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        mass = float(getattr(sync.algorithm, "weights", 0))
    own = torch.cat([each.detach().flatten() for each in model.parameters()])
    log = [(each.exchanges, "".join(member[0] for member in each.members)) for each in members.changes]
    made = members.exchanges
    sync.finish()
    final = torch.cat([each.detach().flatten() for each in model.parameters()])
    return own.numpy(), final.numpy(), log, made, members.away(), mass


def _step(x: Tensor, name: str, step: int) -> Tensor:
    """A step of SGD at x [P]."""
    model = _model(name)
    shapes = {key: each.shape for key, each in model.named_parameters()}
    x = x.clone().requires_grad_()
    parts = dict(zip(shapes, x.split([shape.numel() for shape in shapes.values()]), strict=True))
    named = {key: part.view(shapes[key]) for key, part in parts.items()}
    inputs, targets = _batch(name, step)
    loss = nn.functional.mse_loss(torch.func.functional_call(model, named, (inputs,)), targets)
    return (x - LR * torch.autograd.grad(loss, x)[0]).detach()


def _mean(points: dict[str, Tensor]) -> Tensor:
    return torch.stack([*points.values()]).mean(0)


def _rounds(h: int, outer: Any) -> Any:
    """Rounds of h local steps, after which all are at outer(state, the mean)."""

    def exchange(x: dict[str, Tensor], number: int, state: dict[str, Any]) -> None:
        state.setdefault("anchor", next(iter(x.values())).clone())
        state.setdefault("momentum", torch.zeros_like(state["anchor"]))
        for name in x:
            for step in range(number * h, (number + 1) * h):
                x[name] = _step(x[name], name, step)
        state["anchor"] = outer(state, _mean(x))
        x |= {name: state["anchor"].clone() for name in x}

    return exchange


def _slow_momentum(state: dict[str, Any], mean: Tensor) -> Tensor:
    beta = METHODS["SlowMo"].beta
    state["momentum"] = beta * state["momentum"] + (state["anchor"] - mean) / LR
    return state["anchor"] - LR * state["momentum"]


def _nesterov(state: dict[str, Any], mean: Tensor, options: Any = METHODS["DiLoCo"]) -> Tensor:
    change = state["anchor"] - mean
    state["momentum"] = options.momentum * state["momentum"] + change
    return state["anchor"] - options.lr * (change + options.momentum * state["momentum"])


def _streaming(x: dict[str, Tensor], number: int, state: dict[str, Any]) -> None:
    anchor = state.setdefault("anchor", next(iter(x.values())).clone())
    momentum = state.setdefault("momentum", torch.zeros_like(anchor))
    size, f = len(anchor), number % 3
    part = slice(size * f // 3, size * (f + 1) // 3)
    sent = {}
    for name in x:
        sent[name] = _step(x[name], name, 2 * number)
        x[name] = _step(sent[name], name, 2 * number + 1)
    of_part = {"anchor": anchor[part], "momentum": momentum[part]}
    anchor[part] = _nesterov(of_part, _mean(sent)[part], METHODS["StreamingDiLoCo"])
    momentum[part] = of_part["momentum"]
    for point in x.values():
        point[part] = (anchor[part] + point[part]) / 2


def _gossip(method: str) -> Any:
    def exchange(x: dict[str, Tensor], number: int, state: dict[str, Any]) -> None:
        """Points are z; weights are those of the members, scaled to sum to their number where these change."""
        w = state.setdefault("weights", {name: 1.0 for name in x})
        missing = len(x) / sum(w[name] for name in x)
        stepped = [w[name] * x[name] + _step(x[name], name, number) - x[name] for name in x]
        pushed = missing * torch.stack(stepped)
        matrix = mixing.matrix(METHODS[method].topology, len(x), number, 1, seed=3)
        new = torch.as_tensor(matrix).float() @ pushed
        weights = matrix @ np.array([w[name] * missing for name in x])
        state["weights"] = dict(zip(x, weights.tolist(), strict=True))
        x |= {name: row / weight for name, row, weight in zip(x, new, weights, strict=True)}

    return exchange


EXCHANGES: dict[str, Any] = {
    "AllReduce": _rounds(1, lambda state, mean: mean),
    "LocalSGD": _rounds(3, lambda state, mean: mean),
    "QSR": _rounds(4, lambda state, mean: mean),
    "SlowMo": _rounds(3, _slow_momentum),
    "DiLoCo": _rounds(3, _nesterov),
    "StreamingDiLoCo": _streaming,
    "SGP": _gossip("SGP"),
    "DPSGD": _gossip("DPSGD"),
}


def _written_out(method: str, log: list[tuple[int, str]], made: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Where the members end, with these members after these exchanges; who comes takes the place of a member."""
    first = log[0][1][0]
    x = {first: torch.cat([each.detach().flatten() for each in _model(first).parameters()])}
    state: dict[str, Any] = {}
    ends = [exchanges for exchanges, _ in log[1:]] + [made]
    for (begin, members), end in zip(log, ends, strict=True):
        old = [name for name in members if name in x]
        new = [name for name in members if name not in x]
        donors = {name: old[index % len(old)] for index, name in enumerate(new)}
        x = {name: x[donors.get(name, name)].clone() for name in members}
        if weights := state.get("weights"):
            weights |= {name: weights[donor] for name, donor in donors.items()}
        for number in range(begin, end):
            EXCHANGES[method](x, number, state)
    return x, state


@pytest.mark.parametrize("method", [*METHODS])
def test_members_that_are_lost_and_come_back_end_like_the_recursion(method: str):
    with replicas(_train, method) as running:
        running.start(*NAMES)
        found = running.results(restart=("b",))
    _, _, log, made, away, _ = found["a"]
    expected, state = _written_out(method, log, made)
    for name in NAMES:
        own, final, *_ = found[name]
        np.testing.assert_allclose(own, expected[name], atol=1e-5, rtol=0, err_msg=f"{log}: {name}")
        assert found[name][2:5] == (log, made, away)
        np.testing.assert_array_equal(final, found["a"][1])
    assert [name for name, _, back in away if back is not None] == ["b"]
    if method == "SGP":
        masses = {name: found[name][5] for name in NAMES}
        assert sum(masses.values()) == pytest.approx(len(NAMES), abs=1e-6)
        assert masses == pytest.approx(state["weights"], abs=1e-6)
        assert max(masses.values()) > 1.01  # so that the weights mean something
