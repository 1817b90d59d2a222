"""Workers of an elastic training that are lost, come back, or are slow: what is averaged, and what is lost."""

import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from replicas import LIMIT, replicas
from torch import Tensor, nn

import resync
from resync.engine.membership import Membership
from resync.errors import UserError
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
PATIENCE = 20
"""Seconds that a slow worker is waited for; longer than the lighthouse waits, and than a loaded machine takes."""


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
    of_lr = {"total_steps": 10**6, "warmup_steps": 0} if method == "QSR" else {}
    model, sync = _attached(name, lighthouse, method, of_lr, timeout=20, wait=120)
    members, mass = sync.elastic.membership, 0.0
    while not ((back := _back(members.changes)) and members.exchanges >= back + 4):
        if name == "b" and sync.steps >= 4 and not back and len(members.members) == len(NAMES):
            os.kill(os.getpid(), signal.SIGKILL)
        _loop(sync, model, name)
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


def _loop(sync: Any, model: nn.Module, name: str) -> None:
    inputs, targets = _batch(name, sync.steps)
    nn.functional.mse_loss(model(inputs), targets).backward()
    sync.optimizer.step()
    sync.optimizer.zero_grad()


def _attached(
    name: str, lighthouse: str, method: str, of_training: dict[str, Any] | None = None, **options: Any
) -> tuple[nn.Module, Any]:
    model = _model(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    elastic = resync.Elastic(lighthouse, name, **{"min_replicas": 2} | options)
    return model, resync.attach(model, optimizer, METHODS[method], seed=3, elastic=elastic, **(of_training or {}))


def _slow(name: str, lighthouse: str, folder: Path, method: str, kind: str) -> Any:
    """`c` stops within its second round or step of three members; `a` lets it continue two rounds later."""
    model, sync = _attached(name, lighthouse, method, timeout=PATIENCE)
    members, stopped = sync.elastic.membership, folder / "stopped"
    back, pause = None, 0.0
    while not back or members.exchanges < back + 3:
        if name == "c" and len(members.members) == 3 and members.exchanges >= 2 and not stopped.exists():
            stopped.write_text(f"{os.getpid()} {members.exchanges}")
            if kind == "silent":
                os.kill(os.getpid(), signal.SIGSTOP)
            else:
                _await(folder / "goes on")
        begin, before = time.monotonic(), len(members.members)
        _loop(sync, model, name)
        if (before, len(members.members)) == (3, 2):
            pause = time.monotonic() - begin
        since = members.exchanges - members.changes[-1].exchanges
        if name == "a" and stopped.exists() and len(members.members) == 2 and since == 2:
            (folder / "goes on").touch()
            os.kill(int(stopped.read_text().split()[0]), signal.SIGCONT)
        sizes = [len(each.members) for each in members.changes]
        if sizes[-1] == 3 and 2 in sizes[sizes.index(3) :]:
            back = members.changes[-1].exchanges
    own = torch.cat([each.detach().flatten() for each in model.parameters()])
    return own.numpy(), [(each.exchanges, "".join(m[0] for m in each.members)) for each in members.changes], pause


@pytest.mark.parametrize(("method", "kind"), [("LocalSGD", "silent"), ("AllReduce", "silent"), ("LocalSGD", "slow")])
def test_the_work_of_a_slow_worker_counts_when_it_comes(method: str, kind: str, tmp_path: Path):
    with replicas(_slow, tmp_path, method, kind) as running:
        running.start("a", "b", "c")
        found = running.results()
    own, log, pause = found["a"]
    assert pause >= PATIENCE if kind == "slow" else pause < PATIENCE  # only a heart that beats is waited for
    stopped, h = int((tmp_path / "stopped").read_text().split()[1]), 3 if method == "LocalSGD" else 1
    left, back = next(pair for pair in pairwise(log) if pair[0] == (stopped, "ab") and pair[1][1] == "abc")
    assert back[0] >= left[0] + 2
    before, _ = _written_out(method, log[: log.index(left)], stopped)
    late = before["c"]
    for step in range(stopped * h, (stopped + 1) * h):
        late = _step(late, "c", step)
    late = late - before["c"]
    x = {name: before[name] for name in "ab"}
    for number in range(stopped, back[0]):
        EXCHANGES[method](x, number, {})
    x["c"] = x["a"].clone()
    for number in range(back[0], back[0] + 3):
        if number == back[0] and method == "AllReduce":  # its gradient, in place of a new one
            mean = torch.stack([*(_step(x[name], name, number) for name in "ab"), x["c"] + late]).mean(0)
            x = {name: mean.clone() for name in x}
        elif number == back[0]:
            x["c"] = x["c"] + late
            EXCHANGES[method](x, number, {})
        else:
            EXCHANGES[method](x, number, {})
    for name in "abc":
        np.testing.assert_allclose(found[name][0], x["a"], atol=1e-5, rtol=0, err_msg=f"{log}: {name}")
    np.testing.assert_array_equal(own, found["c"][0])


def _without_lighthouse(name: str, lighthouse: str, folder: Path) -> Any:
    model, sync = _attached(name, lighthouse, "LocalSGD", timeout=20, wait=120)
    members, seen = sync.elastic.membership, None
    while len(members.members) < 3 or members.exchanges < members.changes[-1].exchanges + 2:
        _loop(sync, model, name)
        if name == "a" and len(members.members) == 2 and members.exchanges >= 2:
            (folder / "trained").touch()
            seen = seen or (members.exchanges if (folder / "lost").exists() else None)
            if seen and members.exchanges >= seen + 3:
                (folder / "went on").touch()
    return [len(each.members) for each in members.changes][-2:]


def test_training_goes_on_without_a_lighthouse_and_finds_a_new_one(tmp_path: Path):
    with replicas(_without_lighthouse, tmp_path) as running:
        running.start("a", "b")
        _await(tmp_path / "trained")
        running.end_lighthouse()
        (tmp_path / "lost").touch()
        _await(tmp_path / "went on")
        running.new_lighthouse()
        running.start("c")
        found = running.results()
    assert found == {name: [2, 3] for name in "abc"}


def _beside_a_newcomer(name: str, lighthouse: str, folder: Path) -> list[str]:
    """`c` dies when `a` and `b` have taken it in and wait for it in their new group."""
    if name == "c":
        Membership._configure = lambda *line: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    model, sync = _attached(name, lighthouse, "LocalSGD", timeout=4, wait=120)
    members = sync.elastic.membership
    while len(members.changes) == 1 or members.exchanges < members.changes[-1].exchanges + 3:
        _loop(sync, model, name)
        if members.exchanges >= 2:
            (folder / "trained").touch()
    return ["".join(member[0] for member in each.members) for each in members.changes]


def test_a_newcomer_that_dies_before_it_is_there_stops_nobody(tmp_path: Path):
    with replicas(_beside_a_newcomer, tmp_path) as running:
        running.start("a", "b")
        _await(tmp_path / "trained")
        running.start("c")
        found = running.results()
    assert found == {name: ["ab", "ab"] for name in "ab"}


def _together(name: str, lighthouse: str) -> Any:
    if name == "c":
        time.sleep(2)
    model, sync = _attached(name, lighthouse, "LocalSGD", timeout=20, replicas=3)
    members = sync.elastic.membership
    while members.exchanges < 3:
        _loop(sync, model, name)
    return [len(each.members) for each in members.changes]


def test_as_many_begin_as_are_asked_for():
    with replicas(_together) as running:
        running.start("a", "b", "c")
        assert running.results() == {name: [3] for name in "abc"}


def _alone(name: str, lighthouse: str) -> str:
    try:
        model, sync = _attached(name, lighthouse, "LocalSGD", timeout=5, wait=8 if name == "a" else 120)
        while True:
            _loop(sync, model, name)
            if name == "b" and sync.steps >= 4:
                os.kill(os.getpid(), signal.SIGKILL)
    except TimeoutError as error:
        return str(error)


def _last(name: str, lighthouse: str, method: str) -> int:
    model, sync = _attached(name, lighthouse, method, min_replicas=1, timeout=5, replicas=2)
    members = sync.elastic.membership
    while members.exchanges < 12:
        if name == "b" and members.exchanges >= 3:
            os.kill(os.getpid(), signal.SIGKILL)
        _loop(sync, model, name)
    return len(members.members)


@pytest.mark.parametrize("method", ["LocalSGD", "StreamingDiLoCo", "SGP"])
def test_a_member_alone_trains(method: str):
    with replicas(_last, method, min_replicas=1) as running:
        running.start("a", "b")
        assert running.results() == {"a": 1}


def test_too_few_members_do_not_go_on():
    with replicas(_alone) as running:
        running.start("a", "b")
        found = running.results()
    assert list(found) == ["a"]
    assert "replica a: fewer than 2 replicas came to" in found["a"]


def test_the_script_of_the_page_trains(tmp_path: Path):
    page = (Path(__file__).parents[2] / "docs/robustness.md").read_text().split("## Workers that are lost")[1]
    script = tmp_path / "train.py"
    script.write_text(page.split("```python\n")[1].split("```")[0].replace("60000", "2000"))
    with replicas(_alone) as running:
        command = [sys.executable, str(script), f"127.0.0.1:{running.port}"]
        both = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in "ab"]
        try:
            said = [each.communicate(timeout=LIMIT)[0] for each in both]
        finally:
            for each in both:
                each.kill()
    for name, text in zip("ab", said, strict=True):
        found = re.search(rf"{name}: loss ([0-9.]+), away \[\], 0 samples", text)
        assert found, said
        assert float(found[1]) < 3, said  # noise: 1


def _await(path: Path) -> None:
    deadline = time.monotonic() + LIMIT
    while not path.exists():
        assert time.monotonic() < deadline, f"nobody wrote {path.name}"
        time.sleep(0.05)


def _refused(model: nn.Module, algorithm: Any, **options: Any) -> None:
    elastic = resync.Elastic(**({"lighthouse": "127.0.0.1:1", "name": "a"} | options))
    resync.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), algorithm, elastic=elastic)


def test_what_cannot_change_its_members_is_one_line():
    model = _model("a")
    for options, algorithm, part in (
        ({}, resync.GPA(h=3), "elastic: found algorithm gpa, allowed: allreduce"),
        ({}, resync.SGP(average_state=["momentum_buffer"]), "elastic: found average_state"),
        ({}, resync.DPSGD(), "elastic: found topology bipartite_exponential"),
        ({"min_replicas": 0}, None, "elastic: min_replicas: found 0"),
        ({"timeout": 0}, None, "elastic: timeout: found 0"),
        ({"name": "a:1"}, None, "elastic: name: found 'a:1'"),
        ({"lighthouse": "node"}, None, "elastic: lighthouse: found 'node', allowed: host:port"),
    ):
        with pytest.raises(UserError, match=part):
            _refused(model, algorithm, **options)
