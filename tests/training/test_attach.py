"""The algorithms in a plain PyTorch loop: the same results as simulated workers, with any kind of model."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from processes import TIMEOUT, run_processes
from quadratic import Point, Problem
from torch import nn
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn import functional as F

import resync
from resync.formulas.periods import Constant, PowerRule, rounds
from resync.formulas.schedules import cosine

CENTRES = np.array([[-1.5, 2.0], [-0.5, -2.0], [0.5, 2.0], [1.5, -2.0]])
START = [1.0, -1.0]
STEPS = 7
METHODS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "AllReduce": ("allreduce", {}, {}),
    "LocalSGD": ("local", {"period": 3}, {"period": Constant(h=3)}),
    "QSR": (
        "local",
        {"alpha": 0.2, "h_base": 2, "total_steps": STEPS, "warmup_steps": 0},
        {"period": PowerRule(alpha=0.2, power=2, h_base=2), "training": {"total_steps": STEPS}},
    ),
    "SGP": ("sgp", {"topology": "random", "peers": 2}, {"topology": "random", "peers": 2}),
    "OSGP": ("osgp", {"staleness": 1}, {"staleness": 1}),
    "DPSGD": ("dpsgd", {}, {}),
    "SlowMo": ("slowmo", {"period": 3, "base": "sgp"}, {"period": Constant(h=3), "base": "sgp"}),
    "DiLoCo": (
        "slowmo",
        {"period": 3},
        {"period": Constant(h=3), "alpha": 0.7, "beta": 0.9, "nesterov": True, "scale_by_lr": False},
    ),
    "Lookahead": ("slowmo", {"period": 3}, {"period": Constant(h=3), "alpha": 0.5, "beta": 0.0}),
}


@pytest.fixture(scope="module")
def attached() -> list[dict[str, Any]]:
    """What each of four processes ended with, by method."""
    return run_processes(4, _all_methods)


def _all_methods(rank: int, world_size: int) -> dict[str, Any]:
    found = {name: _loop(rank, name, options) for name, (_, options, _) in METHODS.items()}
    return found | {f"{name} resumed": _loop(rank, name, METHODS[name][1], stop=4) for name in METHODS}


def _loop(rank: int, name: str, options: dict[str, Any], stop: int | None = None) -> dict[str, Any]:
    """STEPS steps of a plain loop; with `stop`, all is saved after so many and continued with new objects."""
    centre = torch.tensor(CENTRES[rank])
    # Only rank 0 has the right start: it is everybody's.
    model, optimizer, sync = _attach(name, options, START if rank == 0 else [9.0, 9.0])
    for step in range(STEPS):
        if step == stop:
            saved = [each.state_dict() for each in (model, optimizer, sync)]
            model, optimizer, sync = _attach(name, options, [0.0, 0.0])
            for each, state in zip((model, optimizer, sync), saved, strict=True):
                each.load_state_dict(state)
        model(centre).backward()
        optimizer.step()
        optimizer.zero_grad()
    with sync.consensus():
        consensus = model.theta.detach().numpy().copy()
    counts = {"rounds": sync.rounds, "bytes": sync.bytes_sent, "steps": sync.steps}
    sync.finish()
    return {"consensus": consensus, "end": model.theta.detach().numpy().copy(), **counts}


def _attach(name: str, options: dict[str, Any], start: list[float]):
    model = Point(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, getattr(resync, name)(model, optimizer, **options)


@pytest.mark.parametrize("name", METHODS)
def test_a_plain_loop_ends_like_simulated_workers(attached, name):
    method, _, options = METHODS[name]
    simulated = Problem(method, CENTRES, START, settings={"momentum": 0.9}, **options)
    for _ in range(STEPS):
        simulated.step()
    for rank in attached:
        np.testing.assert_allclose(rank[name]["consensus"], simulated.consensus(), rtol=0, atol=1e-12)
        np.testing.assert_allclose(rank[name]["end"], simulated.consensus(), rtol=0, atol=1e-12)
        assert rank[name]["rounds"] == simulated.sync.rounds
        assert rank[name]["steps"] == STEPS


@pytest.mark.parametrize("name", METHODS)
def test_a_state_dict_continues_exactly(attached, name):
    for rank in attached:
        assert np.array_equal(rank[f"{name} resumed"]["end"], rank[name]["end"])


def _clipped(rank: int, world_size: int) -> list[list[float]]:
    found = []
    for options, before in ({"clip_norm": 0.5}, False), ({}, True):
        model = Point([0.0, 0.0])
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        resync.AllReduce(model, optimizer, **options)
        model(torch.tensor([6.0, 8.0]) if rank == 0 else torch.tensor([0.0, 0.0])).backward()
        if before:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        found.append(model.theta.tolist())
    return found


def test_allreduce_clips_the_average_and_the_loop_what_a_worker_has():
    """Gradients (-6, -8) and (0, 0): their average (-3, -4) has norm 5; one alone has norm 10."""
    for inside, before in run_processes(2, _clipped):
        np.testing.assert_allclose(inside, [0.3, 0.4], atol=1e-5)
        np.testing.assert_allclose(before, [0.15, 0.2], atol=1e-5)


def _scaled(rank: int, world_size: int) -> tuple[int, float, float]:
    model = Point([0.0, 0.0], torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = resync.LocalSGD(model, optimizer, period=2)
    scaler = ShardedGradScaler("cpu", init_scale=4.0, process_group=dist.group.WORLD)
    for step in range(6):
        scaler.scale(model(torch.tensor(CENTRES[rank], dtype=torch.float32))).backward()
        if rank == 1 and step == 2:
            model.theta.grad.fill_(torch.inf)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return sync.steps, scaler.get_scale(), model.theta.sum().item()


def test_torchs_sharded_scaler_keeps_the_workers_in_lockstep():
    one, two = run_processes(2, _scaled)
    # The fifth step that counts is in the middle of a round: the workers differ, their counts do not.
    assert one[:2] == two[:2] == (5, 2.0)
    assert np.isfinite([one[2], two[2]]).all()


class Awkward(nn.Module):
    """Tied weights, frozen and unused parameters, BatchNorm, channels_last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.frozen = nn.Linear(4, 6).requires_grad_(False)
        self.encode, self.decode = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.decode.weight = self.encode.weight
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Six numbers an image."""
        x = self.norm(self.conv(x.to(memory_format=torch.channels_last))).mean((2, 3))
        return self.decode(self.encode(self.frozen(x)))


def _awkward(rank: int, world_size: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Awkward()
    reference = Awkward()
    reference.load_state_dict(model.state_dict())
    frozen = model.frozen.weight.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    sync = resync.AllReduce(model, optimizer)
    parallel = nn.parallel.DistributedDataParallel(reference, find_unused_parameters=True)
    theirs = torch.optim.SGD(parallel.parameters(), lr=0.1, weight_decay=0.1)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(3):
        x, y = torch.randn(5, 1, 6, 6, generator=generator), torch.randn(5, 6, generator=generator)
        for each, step in ((model, optimizer), (parallel, theirs)):
            step.zero_grad()
            F.mse_loss(each(x), y).backward()
            step.step()
    assert model.decode.weight is model.encode.weight
    assert model.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(model.frozen.weight, frozen)
    assert torch.equal(model.unused, torch.ones(3))
    assert sync.rounds == 3
    return {name: (ours.detach().numpy().copy(), their.detach().numpy().copy()) for (name, ours), their in zip(
        model.named_parameters(), reference.parameters(), strict=True)}  # fmt: skip


def test_an_awkward_model_trains_as_with_distributed_data_parallel():
    for rank in run_processes(2, _awkward):
        for name, (ours, theirs) in rank.items():
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6, err_msg=name)


def test_what_cannot_work_is_refused():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD([model.weight], lr=0.1)
    with pytest.raises(ValueError, match="does not have these parameters of the model: bias"):
        resync.LocalSGD(model, optimizer, period=2)
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    with pytest.raises(ValueError, match=r"share one dtype, found: torch\.float32, torch\.float64"):
        resync.LocalSGD(mixed, torch.optim.SGD(mixed.parameters(), lr=0.1), period=2)


def _qsr_rounds(total_steps: int, warmup_steps: int, told: int) -> list[int]:
    """The rounds of the ViT-B recipe of Gu et al. 2024, in a loop whose model does not matter."""
    lr = cosine(0.008, 1e-6, total_steps, warmup_steps)
    model = Point([0.0])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    sync = resync.QSR(model, optimizer, alpha=0.0175, h_base=4, total_steps=total_steps, warmup_steps=told)
    ends = [0]
    for step in range(total_steps):
        optimizer.param_groups[0]["lr"] = lr(step)
        optimizer.step()
        if sync.synced:
            ends.append(sync.steps)
    return [end - start for start, end in pairwise(ends)]


def test_qsr_in_a_loop_has_the_rounds_of_the_paper():
    """A tenth of the 93,600 steps with a warm-up of 10,000."""
    total, warmup = 9_360, 1_000
    found = _qsr_rounds(total, warmup, told=warmup)
    rule = PowerRule(alpha=0.0175, power=2, h_base=4)
    assert found == rounds(rule, cosine(0.008, 1e-6, total, warmup), total, warmup)
    assert len(found) > 900


@pytest.mark.parametrize("told", [0, 32])
def test_qsr_that_was_not_told_the_whole_warm_up_is_refused(told):
    """At the 1e-6 at which the warm-up starts, H would be 306 million: one average, at the end of 93,600 steps."""
    with pytest.raises(ValueError, match=rf"^the period of the first round .* H = {93_600 - told} at step {told} .*"):
        _qsr_rounds(93_600, 10_000, told)


def _asynchronous(rank: int, world_size: int, folder: Path, steps: int) -> dict[str, Any]:
    """Rank 0 takes no step until the others have made all of theirs; only the averages move anything."""
    model = Point([0.0, 0.0], torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = resync.ADPSGD(model, optimizer)
    own = torch.tensor([float(rank), 1.0 - rank])
    sync.algorithm.published.copy_(own)
    model.theta.data.copy_(own)
    others = [folder / f"done{other}" for other in range(1, world_size)]
    for step in range(steps):
        if rank == 0 and step == 10:
            deadline = time.monotonic() + TIMEOUT
            while not all(other.exists() for other in others):
                assert time.monotonic() < deadline, "the others wait for the slow worker"
                time.sleep(0.01)
        time.sleep(0.001)  # for the averages of the others to happen between the steps
        model.theta.grad = torch.zeros(2)
        optimizer.step()
    (folder / f"done{rank}").touch()
    averages = sync.algorithm.averages
    dist.barrier()
    sync.algorithm.close()
    return {
        "averages": averages,
        "rows": sync.workers.rows.detach().numpy()[0].copy(),
        "alive": sync.algorithm._thread.is_alive(),
    }


def test_asynchronous_pairs_do_not_wait_for_a_slow_worker(tmp_path):
    ranks = run_processes(4, _asynchronous, tmp_path, 500)
    assert all(rank["averages"] > 20 for rank in ranks)
    rows = np.stack([rank["rows"] for rank in ranks])
    np.testing.assert_allclose(rows.sum(0), [6.0, -2.0], rtol=0, atol=1e-5)
    assert np.ptp(rows, axis=0).max() < 1e-2
    assert not any(rank["alive"] for rank in ranks)
