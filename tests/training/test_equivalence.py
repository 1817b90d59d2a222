"""The number of processes is not part of the result, and every algorithm equals its independent reference."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from processes import TIMEOUT, run_processes
from runs import VARIANTS, make_session, trained, wanted
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

from resync.runs.train.loop import train_to_end

TOLERANCE = {"rtol": 0, "atol": 1e-6}
ONE_ROUND = {"epochs": 1, "steps_per_epoch": 4}
"""Of messages of fewer bits. A number between two codes may go to either, and trainings that differ by one part."""


@pytest.fixture(scope="module")
def trained_on(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, list[dict[str, Any]]]:
    """What every rank ended with, by number of processes; they start once for all variants that are to be compared."""
    folder = tmp_path_factory.mktemp("equivalence")
    names = wanted(request, "name")
    return {
        1: [_train_variants(0, 1, folder / "w1", names)],
        **{size: run_processes(size, _train_variants, folder / f"w{size}", names) for size in (2, 4)},
    }


def _train_variants(rank: int, world_size: int, folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    rounds = {name: ONE_ROUND if _is_rounded(name) else {} for name in names}
    return {name: trained(rank, world_size, folder / name, VARIANTS[name] | rounds[name]) for name in names}


def _is_rounded(name: str) -> bool:
    return bool(VARIANTS[name].get("sync", {}).get("compression"))


@pytest.mark.timeout(3 * TIMEOUT)  # the first one trains all variants
@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("name", VARIANTS)
def test_any_number_of_processes_ends_with_the_same_weights(trained_on, name: str, world_size: int):
    alone, parts = trained_on[1][0][name], [rank[name] for rank in trained_on[world_size]]
    # In fp16 the last bit of a sum decides where an activation is rounded to, a thousand times as far.
    tolerance = {"rtol": 0, "atol": 1e-5} if VARIANTS[name].get("precision") == "fp16" else TOLERANCE
    rows = np.concatenate([part["rows"] for part in parts])
    assert {part["bytes_sent"] for part in parts} == {alone["bytes_sent"]}
    if _is_rounded(name):
        _assert_equal_up_to_codes(rows, alone["rows"])
        return
    np.testing.assert_allclose(rows, alone["rows"], **tolerance)
    expected = pytest.approx(_comparable(alone["log"]), rel=1e-5, abs=10 * tolerance["atol"], nan_ok=True)
    assert _comparable(parts[0]["log"]) == expected


def _assert_equal_up_to_codes(rows: np.ndarray, alone: np.ndarray) -> None:
    """DiLoCo after one round: few numbers are not equal, and these by at most a step of the int8 quantiser."""
    # Adam moves no weight by more than 0.5 in four steps of 0.1 or less; the outer optimizer multiplies by 0.7 * 1.9.
    step = 0.7 * 1.9 * 0.5 / 127
    difference = np.abs(rows - alone)
    assert difference.max() < step
    assert (difference > TOLERANCE["atol"]).mean() < 0.01


def _comparable(log: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """All numbers but seconds and loss scales: where a worker's own gradient overflows, DDP's average need not."""
    return {
        f"{table} {index} {name}": value
        for table, rows in log.items()
        for index, row in enumerate(rows)
        for name, value in row.items()
        if "seconds" not in name and name != "loss_scale"
    }


def test_different_seeds_give_different_weights(tmp_path: Path):
    one, two = (trained(0, 1, tmp_path / str(seed), {"seed": seed})["rows"] for seed in (1, 2))
    assert np.abs(one - two).max() > 1e-2


def test_allreduce_equals_distributed_data_parallel(tmp_path: Path):
    """The same batches through torch's own DDP and SGD, two processes."""
    ours = trained(0, 1, tmp_path / "ours", {"workers": 2})
    theirs = run_processes(2, _distributed_data_parallel, tmp_path / "theirs")
    np.testing.assert_allclose(ours["rows"], np.stack(theirs), **TOLERANCE)


def _distributed_data_parallel(rank: int, world_size: int, folder: Path) -> np.ndarray:
    session = make_session(folder, rank, world_size, workers=2)
    model = DistributedDataParallel(_fresh_model(session))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.001)
    _train_reference(session, model, optimizer)
    return _flat(model.module)


@pytest.mark.parametrize(
    ("period", "adam", "sync"),
    [
        (4, False, {"name": "local", "period": {"rule": "constant", "h": 4}}),
        (1, True, {"name": "allreduce", "average": "parameters"}),
    ],
    ids=["local", "parameters"],
)
def test_averaged_parameters_equal_torchs_periodic_model_averager(tmp_path: Path, period: int, adam: bool, sync):
    """The same batches through torch's own averager."""
    changes = {"workers": 2, "epochs": 1, "steps_per_epoch": 8, "sync": sync}
    if adam:
        changes["optimizer"] = {"name": "adamw", "weight_decay": 0.05}
    ours = trained(0, 1, tmp_path / "ours", changes)
    theirs = run_processes(2, _post_local_sgd, tmp_path / "theirs", changes, period, adam)
    np.testing.assert_allclose(ours["rows"], np.stack(theirs), **TOLERANCE)


def _post_local_sgd(
    rank: int, world_size: int, folder: Path, changes: dict[str, Any], period: int, adam: bool
) -> np.ndarray:
    session = make_session(folder, rank, world_size, **changes)
    model = _fresh_model(session)
    inner: torch.optim.Optimizer
    if adam:
        inner = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.05)
    else:
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.001)
    averager = PeriodicModelAverager(period=period, warmup_steps=0)
    averager.step = 1  # counted from 0 it would average after steps 1, 5, 9, ...; this is 4, 8, ...
    _train_reference(session, model, PostLocalSGDOptimizer(inner, averager))
    return _flat(model)


def _fresh_model(session) -> nn.Module:
    """A copy of the session's model that is an ordinary module with parameters of its own."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    model.load_state_dict(session.workers.models[0].state_dict())
    return model


def _train_reference(session, model: nn.Module, optimizer) -> None:
    """The plainest loop over the session's batches."""
    for epoch in range(session.run.epochs):
        batches = session.data.batches(session.sampler, epoch, 0, session.transport.local)
        for step, (inputs, targets) in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = session.lr(epoch * session.run.steps_per_epoch + step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[0]), targets[0]).backward()
            optimizer.step()


def _flat(model: nn.Module) -> np.ndarray:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).numpy()


@pytest.mark.parametrize("period", [{"rule": "constant", "h": 1}, {"rule": "power", "alpha": 1e-6, "h_base": 1}])
def test_local_sgd_with_h_1_and_plain_sgd_equals_allreduce(tmp_path: Path, period: dict[str, Any]):
    plain = {"optimizer": {"name": "sgd", "weight_decay": 0.001}}
    allreduce = trained(0, 1, tmp_path / "a", plain)
    local = trained(0, 1, tmp_path / "b", plain | {"sync": {"name": "local", "period": period}})
    np.testing.assert_allclose(local["rows"], allreduce["rows"], **TOLERANCE)


def test_allreduce_equals_one_worker_with_the_whole_batch(tmp_path: Path):
    four = trained(0, 1, tmp_path / "four", {})
    one = make_session(tmp_path / "one", workers=1)
    train_to_end(one)
    np.testing.assert_allclose(four["rows"][0], one.workers.rows[0].detach().numpy(), **TOLERANCE)


def test_sgp_is_the_papers_recursion(tmp_path: Path):
    """y = step(x), then x = (y + y of the in-peer) / 2 with hops 1, 2, 1, ...: written out in float64."""
    session = make_session(tmp_path, sync={"name": "sgp"}, optimizer={"name": "sgd"})
    x = session.workers.rows.detach().numpy().astype(np.float64).copy()
    batches = session.data.batches(session.sampler, 0, 0, session.transport.local)
    for step, (inputs, targets) in zip(range(4), batches, strict=False):
        session.workers.rows.data.copy_(torch.from_numpy(x))
        session.engine.gradients(inputs, targets)
        y = x - session.lr(step) * session.workers.grads.numpy()
        x = (y + np.roll(y, 1 if step % 2 == 0 else 2, axis=0)) / 2
    expected = x
    again = make_session(tmp_path / "again", sync={"name": "sgp"}, optimizer={"name": "sgd"})
    _steps(again, 4)
    np.testing.assert_allclose(again.workers.rows.detach().numpy(), expected, **TOLERANCE)


def _steps(session, number: int) -> None:
    from resync.runs.train.loop import train_step

    batches = session.data.batches(session.sampler, 0, 0, session.transport.local)
    for _, (inputs, targets) in zip(range(number), batches, strict=False):
        train_step(session, inputs, targets)
