"""The algorithms in a plain PyTorch loop: the same results as simulated workers, with any kind of model."""

import threading
import time
from copy import deepcopy
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from machine import until
from processes import TIMEOUT, run_processes
from quadratic import Point
from torch import nn
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn import functional as F

import resync
from resync import library
from resync.base.settings.options import TrainingShape
from resync.base.torch_private import takes_loss_scale
from resync.workers.formulas.periods import PowerRule, rounds
from resync.workers.formulas.schedules import CosineSchedule, Schedule
from resync.workers.sync import adpsgd_threads
from resync.workers.sync.fields import moments
from resync.workers.sync.options.base import SyncOptions

CENTRES = np.array([[-1.5, 2.0], [-0.5, -2.0], [0.5, 2.0], [1.5, -2.0]])
START = [1.0, -1.0]


@pytest.fixture(scope="module")
def pair() -> list[dict[str, Any]]:
    """What each of two processes found in the cases that need no more."""
    return run_processes(2, _all_of_two)


def _all_of_two(rank: int, world_size: int) -> dict[str, Any]:
    scaled = {fused: _scaled(rank, fused) for fused in (False, True)}
    return {"clipped": _clipped(rank), "awkward": _awkward(rank)} | scaled


def _clipped(rank: int) -> list[list[float]]:
    found = []
    all_reduce, snoo, gpa = resync.AllReduce(), resync.SNOO(period=9), resync.GPA(mu_x=0.0)
    for options, clip_norm in (all_reduce, 0.5), (snoo, 0.5), (gpa, 0.5), (all_reduce, None):
        model = Point([0.0, 0.0])
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        resync.attach(model, optimizer, options, clip_norm=clip_norm)
        model(torch.tensor([6.0, 8.0]) if rank == 0 else torch.tensor([0.0, 0.0])).backward()
        if clip_norm is None:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        found.append(model.theta.tolist())
    return found


def test_averaged_gradients_are_clipped_as_an_average_and_the_loop_what_a_worker_has(pair):
    """Gradients (-6, -8) and (0, 0): their average (-3, -4) has norm 5; one alone has norm 10."""
    for *inside, before in (rank["clipped"] for rank in pair):
        np.testing.assert_allclose(inside, [[0.3, 0.4]] * 3, atol=1e-5)
        np.testing.assert_allclose(before, [0.15, 0.2], atol=1e-5)


def _scaled(rank: int, fused: bool) -> tuple[int, float, float]:
    model = Point([0.0, 0.0], torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    sync = resync.attach(model, optimizer, resync.LocalSGD(period=2))
    scaler = ShardedGradScaler("cpu", init_scale=4.0, process_group=dist.group.WORLD)
    for step in range(6):
        scaler.scale(model(torch.tensor(CENTRES[rank], dtype=torch.float32))).backward()
        if rank == 1 and step == 2:
            model.theta.grad.fill_(torch.inf)
        if fused:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return sync.steps, scaler.get_scale(), model.theta.sum().item()


@pytest.mark.parametrize("fused", [False, True])
def test_torchs_sharded_scaler_keeps_the_workers_in_lockstep(pair, fused):
    one, two = (rank[fused] for rank in pair)
    # The fifth step that counts is in the middle of a round: the workers differ, their counts do not.
    assert one[:2] == two[:2] == (5, 2.0)
    assert np.isfinite([one[2], two[2]]).all()


def test_gradients_that_a_scaler_leaves_to_a_fused_optimizer_are_refused():
    model = Point(START)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    assert takes_loss_scale(optimizer)
    assert not takes_loss_scale(torch.optim.Adam(model.parameters()))
    resync.attach(model, optimizer, resync.AllReduce())
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.zeros(2))).backward()
    with pytest.raises(RuntimeError, match=r"^rank 0, step 1: the gradients still have the loss scale, .*unscale_"):
        scaler.step(optimizer)
    assert model.theta.tolist() == START


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


def _awkward(rank: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Awkward()
    reference = Awkward()
    reference.load_state_dict(model.state_dict())
    frozen = model.frozen.weight.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    sync = resync.attach(model, optimizer, resync.AllReduce())
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


def test_an_awkward_model_trains_as_with_distributed_data_parallel(pair):
    for rank in pair:
        for name, (ours, theirs) in rank["awkward"].items():
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6, err_msg=name)


def test_a_parameter_without_a_gradient_stays_with_gpa_and_weight_decay():
    model = nn.ModuleDict({"used": nn.Linear(2, 2), "unused": nn.Linear(2, 2)})
    before = deepcopy(model.unused.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    sync = resync.attach(model, optimizer, resync.GPA())
    for _ in range(3):
        model.used(torch.ones(2)).sum().backward()
        optimizer.step()
        assert all(torch.equal(value, before[name]) for name, value in model.unused.state_dict().items())
    sync.finish()
    for name, value in model.unused.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [(torch.optim.NAdam, {}), (torch.optim.Rprop, {}), (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.9})],
)
def test_slowmo_with_zeroed_buffers_begins_every_round_with_the_optimizers_first_step(optimizer, settings):
    """Also where a field starts at another value than 0; without outer momentum, rounds of one gradient are equal."""
    model = Point(START)
    stepper = optimizer(model.parameters(), lr=0.01, **settings)
    sync = resync.attach(model, stepper, resync.SlowMo(period=3, buffers="zero", beta=0.0))
    changes = []
    for _ in range(9):
        before = model.theta.detach().clone()
        model.theta.grad = torch.ones(2, dtype=torch.float64)
        stepper.step()
        changes.append((model.theta.detach() - before).numpy())
    assert sync.rounds == 3
    np.testing.assert_allclose(changes[3:], changes[:3] * 2, rtol=0, atol=1e-12)


def test_the_step_counter_of_a_parameter_that_is_a_number_is_no_moment():
    parameters = [nn.Parameter(torch.ones(shape)) for shape in ((2, 2), ())]
    optimizer = torch.optim.AdamW(parameters)
    sum(parameter.sum() for parameter in parameters).backward()
    optimizer.step()
    assert moments(optimizer) == ["exp_avg", "exp_avg_sq"]


VIT_B = PowerRule(alpha=0.0175, power=2, h_base=4)


def _lr(total_steps: int, warmup_steps: int) -> Schedule:
    shape = TrainingShape(1, 1, total_steps, total_steps, warmup_steps)
    return CosineSchedule(name="cosine", max_lr=0.008, min_lr=1e-6).of(shape)


def _rounds(options: SyncOptions, total_steps: int, warmup_steps: int, told: int | None) -> list[int]:
    """The rounds of the ViT-B recipe of Gu et al. 2024, in a loop whose model does not matter."""
    lr = _lr(total_steps, warmup_steps)
    model = Point([0.0])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    sync = resync.attach(model, optimizer, options, total_steps=total_steps, warmup_steps=told)
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
    found = _rounds(resync.QSR(alpha=VIT_B.alpha, h_base=VIT_B.h_base), total, warmup, warmup)
    assert found == rounds(VIT_B, _lr(total, warmup), total, warmup)
    assert len(found) > 900


@pytest.mark.parametrize("method", [resync.LocalSGD, resync.Lookahead])
def test_a_period_that_was_not_told_the_whole_warm_up_is_refused(method):
    """At the 1e-6 at which the warm-up starts, H would be 306 million: one average, at the end of 93,600 steps."""
    for told in (0, 32):
        error = rf"^the period of the first round .* H = {93_600 - told} at step {told} .*"
        with pytest.raises(ValueError, match=error):
            _rounds(method(period=VIT_B), 93_600, 10_000, told)
    with pytest.raises(ValueError, match=r"warmup_steps: missing, allowed: integer >= 0, because the period follows"):
        _rounds(method(period=VIT_B), 93_600, 10_000, None)


def _pair(rank: int, start: Any = None) -> tuple[Point, torch.optim.Optimizer, resync.Synchronised]:
    """A worker of asynchronous AD-PSGD with parameters of its own, by default (rank, 1 - rank)."""
    model = Point([0.0, 0.0], torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = resync.attach(model, optimizer, resync.ADPSGD(asynchronous=True))
    own = torch.tensor([float(rank), 1.0 - rank]) if start is None else torch.tensor(start)
    sync.algorithm.published.copy_(own)
    model.theta.data.copy_(own)
    sync._guard.remember(0)
    sync.transport.barrier()  # no partner may ask for an average of what is not yet set
    return model, optimizer, sync


def _still(model: Point, optimizer: torch.optim.Optimizer) -> None:
    """A step that moves nothing."""
    model.theta.grad = torch.zeros(2)
    optimizer.step()


def _asynchronous(rank: int, world_size: int, folder: Path) -> np.ndarray:
    """Rank 0 takes no step until the others have made all of theirs; only the averages move anything."""
    model, optimizer, sync = _pair(rank)
    assert not sync.transport.communication_is_known  # also before the first average
    others = [folder / f"done{other}" for other in range(1, world_size)]
    for step in range(500):
        if rank == 0 and step == 10:
            until(lambda: all(other.exists() for other in others))  # who do not wait for the slow worker
        time.sleep(0.001)  # for the averages of the others to happen between the steps
        _still(model, optimizer)
    (folder / f"done{rank}").touch()
    assert int(sync.algorithm.averages) > 20
    dist.barrier()
    sync.algorithm.close()
    assert not sync.algorithm._thread.is_alive()
    assert sync.bytes_sent == 8 * int(sync.algorithm.averages)  # two float32
    return sync.algorithm.rows.numpy()[0].copy()


def test_asynchronous_pairs_do_not_wait_for_a_slow_worker(tmp_path):
    rows = np.stack(run_processes(4, _asynchronous, tmp_path))
    np.testing.assert_allclose(rows.sum(0), [6.0, -2.0], rtol=0, atol=1e-5)
    assert np.ptp(rows, axis=0).max() < 1e-2


def _closed_during_an_average(rank: int, world_size: int) -> list[float]:
    """The thread of the active worker goes on only when `close` has been called, with one more step to average."""
    model, optimizer, sync = _pair(rank)
    waits, begun = sync.algorithm._wait_for_a_step, threading.Event()

    def held() -> bool:
        found = waits()
        begun.set()
        until(lambda: sync.algorithm._closing)
        return found

    sync.algorithm._wait_for_a_step = held
    if rank == 1:
        # The thread is in the method of before: one step ends it.
        _still(model, optimizer)
        until(lambda: int(sync.algorithm.averages))
        _still(model, optimizer)
        begun.wait(60)
        _still(model, optimizer)
    sync.algorithm.close()
    assert not sync.algorithm._thread.is_alive()
    return model.theta.tolist()


def _slow_half(rank: int, world_size: int) -> list[float]:
    """The passive partner adds its half of an average when both are about to evaluate, the active one before."""
    model, optimizer, sync = _pair(rank)
    moves, evaluating = sync.algorithm._move, threading.Event()

    def late(*rows: torch.Tensor) -> None:
        if rank == 0:
            evaluating.wait(60)
            time.sleep(0.1)
        moves(*rows)

    sync.algorithm._move = late
    _still(model, optimizer)
    if rank == 1:
        until(lambda: int(sync.algorithm.averages))
    evaluating.set()
    with sync.consensus():
        found = model.theta.tolist()
    sync.finish()
    return found


def _slow_to_load(rank: int, world_size: int) -> list[float]:
    """The active partner is ready to step long before the passive one has loaded its state."""
    model, optimizer, sync = _pair(rank)
    state = sync.state_dict()
    if rank == 0:
        time.sleep(0.3)
    sync.load_state_dict(state)
    _still(model, optimizer)
    sync.finish()
    return model.theta.tolist()


def _failing_steps(rank: int, world_size: int) -> list[float]:
    """A closure that raises, twice, costs its step and no other."""
    model, optimizer, sync = _pair(rank)

    def fails() -> float:
        raise ValueError("no loss")

    for _ in range(2):
        with pytest.raises(ValueError, match="no loss"):
            optimizer.step(fails)
        _still(model, optimizer)
    sync.finish()
    return model.theta.tolist()


def _idle(rank: int, world_size: int) -> list[float]:
    """Every rank evaluates for longer than the time limit of messages; a step after it is averaged."""
    library.time_limit = lambda *where: timedelta(seconds=TIMEOUT)  # the processes may take longer to meet
    adpsgd_threads.time_limit = lambda device: timedelta(seconds=2)
    model, optimizer, sync = _pair(rank)
    with sync.consensus():
        time.sleep(3)
    _still(model, optimizer)
    sync.finish()
    return model.theta.tolist()


@pytest.mark.parametrize("case", [_closed_during_an_average, _slow_half, _slow_to_load, _failing_steps, _idle])
def test_an_asynchronous_pair_ends_with_both_halves_of_every_average(case):
    assert run_processes(2, case) == [[0.5, 0.5]] * 2


def _resumed(rank: int, world_size: int) -> np.ndarray:
    """Steps that move nothing, a state, more steps, and a new start from the state."""
    model, optimizer, sync = _pair(rank)
    for _ in range(20):
        _still(model, optimizer)
    with sync.consensus():
        np.testing.assert_allclose(model.theta.detach().numpy(), [1.5, -0.5], rtol=0, atol=1e-6)
    saved = deepcopy(model.state_dict()), sync.state_dict()
    _still(model, optimizer)
    sync.finish()
    model, optimizer, again = _pair(rank, [9.0, 9.0])
    model.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    again.algorithm.close()
    own = saved[1]["workers"]
    assert torch.equal(again.algorithm.rows[0], own["published"][0])
    assert int(again.algorithm.averages) == int(own["averages"]) > 0
    assert again.steps == 20
    return own["published"].numpy()[0]


def test_a_resumed_asynchronous_run_has_lost_no_average():
    np.testing.assert_allclose(sum(run_processes(4, _resumed)), [6.0, -2.0], rtol=0, atol=1e-5)


def _left_alone(rank: int, world_size: int, active: bool) -> str:
    """How `close` ends where the active partner leaves without it, or where the passive one does not answer."""
    model, optimizer, sync = _pair(rank)
    assert sync.algorithm.limit == timedelta(seconds=TIMEOUT), "the limit is that of the process group"
    if rank != active:
        sync.algorithm._snapshot = lambda: time.sleep(TIMEOUT)
        return ""
    sync.algorithm.limit = timedelta(seconds=1)
    if active:
        _still(model, optimizer)
    with pytest.raises(RuntimeError) as failure:
        sync.algorithm.close()
    return str(failure.value)


@pytest.mark.parametrize(
    ("active", "message"),
    [
        (False, "rank 0: the averaging thread has not ended at step 0: no message from rank 1 within 0:00:01"),
        (True, "rank 1: the averaging thread has ended at step 1: no message from or to rank 0: "),
    ],
)
def test_a_partner_that_is_gone_is_named_within_the_time_limit(active, message):
    assert run_processes(2, _left_alone, active)[active].startswith(message)
