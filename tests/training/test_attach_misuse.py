"""What an algorithm in somebody else's loop refuses or notices: an average must not silently not happen."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from processes import run_processes
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import resync
from resync.config.parts import SyncOptions
from resync.torch_private import time_limit

Loop = tuple[nn.Module, torch.optim.Optimizer, resync.Synchronised]
METHODS: dict[str, SyncOptions] = {
    "LocalSGD": resync.LocalSGD(period=2),
    "AllReduce": resync.AllReduce(),
    "SGP": resync.SGP(topology="random", peers=1),
    "OSGP": resync.OSGP(),
    "SlowMo": resync.SlowMo(period=2, base="allreduce"),
    "DPSGD": resync.DPSGD(),
    "Lookahead": resync.Lookahead(period=2),
    "ADPSGD": resync.ADPSGD(asynchronous=True),
}


def _model(rank: int) -> nn.Module:
    """A model with parameters of its own on every rank, the first layer frozen, and a buffer."""
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    return model


def _loop(rank: int, method: str = "LocalSGD", optimizer: type[torch.optim.Optimizer] = torch.optim.SGD) -> Loop:
    model = _model(rank)
    found = optimizer(model.parameters(), lr=0.1)
    return model, found, resync.attach(model, found, METHODS[method])


def _backward(model: nn.Module) -> torch.Tensor:
    loss: torch.Tensor = model(torch.randn(4, 3).to(next(model.parameters()).dtype)).square().sum()
    loss.backward()
    return loss


def _steps(model: nn.Module, optimizer: torch.optim.Optimizer, number: int = 2, closure: bool = False) -> None:
    """Steps on data of this rank's own, in the usual order or with a closure."""

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        return _backward(model)

    for _ in range(number):
        if closure:
            optimizer.step(loss)
        else:
            loss()
            optimizer.step()


@contextmanager
def _error(found: list[str]) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, TimeoutError) as error:
        found.append(f"{type(error).__name__}: {error}")


Change = Callable[[nn.Module, torch.optim.Optimizer], object]


def _rebind(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model[2].weight.data = model[2].weight.data.clone()


def _assign(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(vector.clone(), model.parameters())


def _replace(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model[2].bias = optimizer.param_groups[0]["params"][-1] = nn.Parameter(torch.zeros(2))


def _add(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.append(nn.Linear(2, 2))
    optimizer.add_param_group({"params": list(model[3].parameters())})


def _wrap(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.wrapper = [DistributedDataParallel(model)]  # in a list, so that it is no part of the model


CHANGES: dict[str, tuple[Change, str]] = {
    "half": (lambda model, _: model.half(), r"4 parameters, the first of which is 1\.weight, are stored elsewhere"),
    "double": (lambda model, _: model.double(), r"4 parameters, the first of which is 1\.weight, are stored"),
    "data": (_rebind, r"1 parameters, the first of which is 2\.weight, are stored elsewhere than when"),
    "vector_to_parameters": (_assign, r"4 parameters, the first of which is .*, are stored elsewhere"),
    "attached twice": (
        lambda model, _: _second(model[2]),
        r"2 parameters, the first of which is 2\.weight, are stored",
    ),
    "unfrozen": (lambda model, _: model[0].requires_grad_(), r"0\.weight is trained and not averaged: it was added"),
    "replaced": (_replace, r"2\.bias is trained and not averaged: it was added, replaced or unfrozen after"),
    "added": (_add, r"3\.weight is trained and not averaged: it was added, replaced or unfrozen after"),
    "fewer": (
        lambda _, optimizer: optimizer.param_groups[0]["params"].pop(),
        r"the optimizer has 5 parameters, 6 when",
    ),
    "DistributedDataParallel": (_wrap, r"the model is wrapped in DistributedDataParallel, which averages"),
}


def _second(module: nn.Module) -> None:
    resync.attach(module, torch.optim.SGD(module.parameters(), lr=0.1), resync.LocalSGD(period=2))


def _change(rank: int, change: Change, method: str) -> list[str]:
    """The error of the step after a change, if any."""
    model, optimizer, _ = _loop(rank, method)
    found: list[str] = []
    if change is not _wrap:
        _steps(model, optimizer, 1)
    change(model, optimizer)
    with _error(found):
        _steps(model, optimizer, 1)
    return found


def _memory_format(rank: int) -> list[str]:
    model = nn.Conv2d(2, 2, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = resync.attach(model, optimizer, resync.LocalSGD(period=2))
    model.to(memory_format=torch.channels_last)
    found: list[str] = []
    for call in (optimizer.step, sync.state_dict, sync.finish, lambda: sync.consensus().__enter__()):
        with _error(found):
            call()
    return found


def _inside_consensus(rank: int) -> list[str]:
    model, optimizer, sync = _loop(rank)
    found: list[str] = []
    with sync.consensus():
        for call in (lambda: _steps(model, optimizer, 1), sync.state_dict, sync.finish):
            with _error(found):
                call()
    _steps(model, optimizer, 2)
    sync.finish()
    return [*found, f"{sync.steps} steps"]


def _untrained(rank: int) -> list[str]:
    """A new head that no optimizer has is in no average."""
    model, optimizer, sync = _loop(rank)
    model[2] = nn.Linear(3, 2)
    found: list[str] = []
    _steps(model, optimizer, 1)
    with _error(found):
        sync.finish()
    return found


def _refused(rank: int) -> dict[str, list[str]]:
    """What attaching says of models and options."""
    mesh = init_device_mesh("cpu", (2,))
    sharded = fully_shard(nn.Linear(4, 4), mesh=mesh)
    head, twice = nn.Linear(2, 2), _loop(rank)[0]
    wrapped = DistributedDataParallel(nn.Linear(2, 2))
    cpu = torch.device("cpu")
    models: dict[str, tuple[nn.Module, int]] = {
        "fsdp": (FullyShardedDataParallel(nn.Linear(4, 4), device_id=cpu), 2),
        "fsdp original": (FullyShardedDataParallel(nn.Linear(4, 4), device_id=cpu, use_orig_params=True), 2),
        "fully_shard": (sharded, 2),
        "compiled ddp": (torch.compile(wrapped), 2),
        "meta": (nn.Linear(2, 2, device="meta"), 2),
        "shapes": (nn.Linear(*((6, 1) if rank else (3, 1)), bias=bool(rank == 0)), 2),
        "order": (nn.Sequential(*[nn.Linear(2, 3), nn.Linear(3, 2)][:: -1 if rank else 1]), 2),
        "dtypes": (nn.Linear(2, 2, dtype=[torch.float32, torch.float64][rank]), 2),
        "frozen": (nn.Linear(2, 2).requires_grad_(rank == 0) if rank else nn.Linear(2, 2), 2),
        "periods": (nn.Linear(2, 2), 2 + rank),
        "again": (twice, 2),
    }
    found: dict[str, list[str]] = {name: [] for name in models}
    for name, (model, period) in models.items():
        with _error(found[name]):
            resync.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), resync.LocalSGD(period=period))
    found["strangers"] = []
    with _error(found["strangers"]):
        resync.attach(
            head, torch.optim.SGD([*head.parameters(), nn.Parameter(torch.ones(7))], lr=0.1), resync.AllReduce()
        )
    return found


REFUSED = {
    "fsdp": r"^ValueError: .*_flat_param is a shard of FullyShardedDataParallel, allowed: whole parameters",
    "fsdp original": r"^ValueError: .*weight is a shard of FullyShardedDataParallel, allowed: whole parameters",
    "fully_shard": r"^ValueError: weight is a DTensor, as fully_shard makes them, allowed: plain tensors",
    "compiled ddp": r"^ValueError: _orig_mod of the model is wrapped in DistributedDataParallel, allowed: the model",
    "meta": r"^ValueError: weight is on the meta device and has no values",
    "shapes": r"rank 0 has parameter weight: float32 \[1, 3\], rank 1 has parameter weight: float32 \[1, 6\]$",
    "order": r"rank 0 has parameter 0\.weight: float32 \[3, 2\], rank 1 has parameter 0\.weight: float32 \[2, 3\]$",
    "dtypes": r"rank 0 has parameter weight: float32 \[2, 2\], rank 1 has parameter weight: float64 \[2, 2\]$",
    "frozen": r"rank 0 has parameter weight: float32 \[2, 2\], rank 1 has parameter weight: float32 \[2, 2\], frozen$",
    "periods": r"^ValueError: the ranks attach different things: rank 0 has .*h=2.*, rank 1 has .*h=3",
    "again": r"^ValueError: an algorithm is attached to this model already: end it with finish\(\), or after",
    "strangers": r"^ValueError: the optimizer has parameters that the model does not have, of shape \(7,\): they would",
}


def _out_of_step(rank: int) -> list[str]:
    """Rank 1 makes a step more within the round, rank 0 averages once more, and rank 1 does something else."""
    found: list[str] = []
    for call in ("consensus", "finish"):
        model, optimizer, sync = _loop(rank)
        _steps(model, optimizer, 2 + rank)
        with _error(found):
            sync.finish() if call == "finish" else sync.consensus().__enter__()
    model, optimizer, sync = _loop(rank)
    with _error(found):
        sync.finish() if rank else sync.consensus().__enter__()
    return found


def _absent(rank: int) -> list[str]:
    """Rank 1 does not come until rank 0 has given up."""
    found: list[str] = []
    model, optimizer, sync = _loop(rank)
    same = sync._meetings.limit == time_limit(torch.device("cpu"))
    sync._meetings.limit = timedelta(seconds=0.01)
    _steps(model, optimizer, 2)
    if rank == 0:
        with _error(found):
            sync.finish()
    dist.barrier()
    return [*found, f"{same}"]


CLOSURES = [
    *(
        (method, optimizer)
        for method in METHODS
        if method != "ADPSGD"
        for optimizer in (torch.optim.SGD, torch.optim.Adam)
    ),
    *((method, torch.optim.LBFGS) for method in ("LocalSGD", "DPSGD", "Lookahead")),
]


def _closures(rank: int) -> dict[str, Any]:
    """The parameters after steps with a closure and, where the optimizer can, in the usual order."""
    found = {}
    for method, optimizer in CLOSURES:
        ends = []
        for closure in (True, False) if optimizer is not torch.optim.LBFGS else (True,):
            model, stepper, sync = _loop(rank, method, optimizer)
            torch.manual_seed(10 + rank)
            _steps(model, stepper, 4, closure)
            sync.finish()
            ends.append(nn.utils.parameters_to_vector(model.parameters()).detach().numpy())
        found[f"{method} {optimizer.__name__}"] = ends
    return found


def _many_gradients(rank: int) -> list[str]:
    found: list[str] = []
    for method in ("AllReduce", "OSGP", "SlowMo", "ADPSGD"):
        model, optimizer, sync = _loop(rank, method, torch.optim.LBFGS)
        with _error(found):
            _steps(model, optimizer, 1, closure=True)
        sync.finish()
    return found


class Deaf(torch.optim.SGD):
    """An optimizer that ignores its closure."""

    def step(self, closure: Any = None) -> None:
        """A step on the gradients that are there."""
        super().step()


def _start(rank: int) -> dict[str, np.ndarray]:
    """All tensors of a model after attaching, in which nothing is equal before."""
    model = _model(rank)
    model[1].running_mean.fill_(rank)
    model[1].num_batches_tracked.fill_(rank)
    model.register_buffer("mask", torch.tensor([rank == 0, True]))
    model.register_buffer("none", None)
    model.register_buffer("image", torch.rand(1, 2, 2, 2).to(memory_format=torch.channels_last), persistent=False)
    resync.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), resync.LocalSGD(period=2))
    return {name: each.detach().numpy().copy() for name, each in [*model.named_parameters(), *model.named_buffers()]}


def _resumed(rank: int) -> list[str]:
    """A state in the middle of a round, and the model's state loaded before attaching, never, and after it."""
    found: list[str] = []
    model, optimizer, sync = _loop(rank)
    _steps(model, optimizer, 1)
    saved = [deepcopy(each.state_dict()) for each in (model, sync)]
    for when in ("before", "never", "after"):
        again = _model(rank)
        if when == "before":
            again.load_state_dict(saved[0])
        attached = resync.attach(again, torch.optim.SGD(again.parameters(), lr=0.1), METHODS["LocalSGD"])
        if when == "after":
            again.load_state_dict(saved[0])
        with _error(found):
            attached.load_state_dict(saved[1])
            found.append(f"{attached.steps} steps")
    return found


def _freezing(rank: int) -> list[float]:
    """Freezing a layer later keeps the place of the others: where the averages of two methods are."""
    ends = []
    for method in ("LocalSGD", "AllReduce"):
        model, optimizer, sync = _loop(rank, method)
        _steps(model, optimizer, 1)
        model[1].requires_grad_(False)
        _steps(model, optimizer, 3)
        sync.finish()
        ends.append(nn.utils.parameters_to_vector(model.parameters()).sum().item())
    return ends


def _cases(rank: int, world_size: int) -> dict[str, Any]:
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    return {
        "changes": {
            f"{name} {method}": _change(rank, change, method)
            for name, (change, _) in CHANGES.items()
            for method in ("LocalSGD", "AllReduce")
        },
        "memory format": _memory_format(rank),
        "inside consensus": _inside_consensus(rank),
        "untrained": _untrained(rank),
        "refused": _refused(rank),
        "out of step": _out_of_step(rank),
        "absent": _absent(rank),
        "closures": _closures(rank),
        "many gradients": _many_gradients(rank),
        "start": _start(rank),
        "resumed": _resumed(rank),
        "freezing": _freezing(rank),
    }


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    """What two processes found in every case."""
    return run_processes(2, _cases)


def _matches(text: str, pattern: str) -> None:
    with pytest.raises(AssertionError, match=pattern):
        raise AssertionError(text)


@pytest.mark.parametrize("method", ["LocalSGD", "AllReduce"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_parts_the_workers_is_an_error_in_the_next_step(ranks, name, method):
    for rank, found in enumerate(ranks):
        step = 1 if name == "DistributedDataParallel" else 2
        [error] = found["changes"][f"{name} {method}"]
        _matches(error, rf"^RuntimeError: rank {rank}, step {step}: {CHANGES[name][1]}")


def test_a_moved_parameter_is_an_error_in_every_call(ranks):
    for rank, found in enumerate(ranks):
        calls = ("step 1", "state_dict()", "finish()", "consensus()")
        for error, call in zip(found["memory format"], calls, strict=True):
            assert error.startswith(f"RuntimeError: rank {rank}, {call}: 1 parameters, the first of which is weight")


def test_what_the_end_of_a_consensus_would_undo_is_an_error(ranks):
    for rank, found in enumerate(ranks):
        *errors, steps = found["inside consensus"]
        for error, call in zip(errors, ("step 1", "state_dict()", "finish()"), strict=True):
            assert error.startswith(f"RuntimeError: rank {rank}, {call}: called inside `with consensus()`, whose end")
        assert steps == "2 steps"


def test_a_layer_that_was_replaced_and_is_not_trained_is_an_error_at_the_end(ranks):
    for rank, found in enumerate(ranks):
        [error] = found["untrained"]
        assert error.startswith(f"RuntimeError: rank {rank}, finish(): 2.weight is trained and not averaged")


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_cannot_be_averaged_is_refused(ranks, name):
    for found in ranks:
        [error] = found["refused"][name]
        _matches(error, REFUSED[name])


def test_ranks_that_are_not_in_step_are_named_on_every_rank(ranks):
    counts = "rank 0: {0} after 2 steps in 1 rounds; rank 1: {0} after 3 steps in 1 rounds"
    for rank, found in enumerate(ranks):
        consensus, finish, calls = found["out of step"]
        start = f"RuntimeError: rank {rank}, {{}}: the ranks are not in step: "
        assert consensus.startswith(start.format("consensus()") + counts.format("consensus()"))
        assert finish.startswith(start.format("finish()") + counts.format("finish()"))
        assert "rank 0: consensus() after 0 steps in 0 rounds; rank 1: finish() after 0 steps in 0 rounds" in calls


def test_a_rank_that_does_not_come_is_named_within_the_time_limit(ranks):
    error, same = ranks[0]["absent"]
    assert error.startswith("TimeoutError: rank 0, finish() after 2 steps: rank 1 did not come within 0:00:00.01")
    assert same == "True", "the limit is that of the process group"


@pytest.mark.parametrize(("method", "optimizer"), CLOSURES)
def test_steps_with_a_closure_are_those_without(ranks, method, optimizer):
    ends = [found["closures"][f"{method} {optimizer.__name__}"] for found in ranks]
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    for end in ends:
        assert all(np.array_equal(each, end[0]) for each in end)


def test_an_optimizer_with_many_gradients_in_a_step_needs_a_local_method(ranks):
    for rank, found in enumerate(ranks):
        assert len(found["many gradients"]) == 4
        for error in found["many gradients"]:
            assert error.startswith(
                f"RuntimeError: rank {rank}, step 1: the optimizer calls its closure more than once"
            )


def test_everything_in_a_model_starts_as_on_rank_0(ranks):
    one, other = (found["start"] for found in ranks)
    assert len(one) == 6 + 5
    for name, value in one.items():
        assert np.array_equal(other[name], value), name
    assert one["mask"].tolist() == [True, True]


def test_a_state_without_its_parameters_is_refused(ranks):
    refused = "ValueError: the model does not have the parameters with which this state was saved"
    for rank, found in enumerate(ranks):
        before, never, after = found["resumed"]
        # Attaching puts the parameters of rank 0 into all: those of this state are there on rank 0 alone.
        assert before.startswith(refused) if rank else before == "1 steps"
        assert never.startswith(refused)
        assert after == "1 steps"


def test_a_layer_may_be_frozen_later(ranks):
    assert ranks[0]["freezing"] == ranks[1]["freezing"]


class Wrapped(torch.optim.SGD):
    """An optimizer whose step is that of its base class, which may raise first."""

    def step(self, closure: Any = None) -> Any:
        """A step of SGD, unless the learning rate is 0."""
        if not self.param_groups[0]["lr"]:
            raise ArithmeticError
        return super().step(closure)


def test_a_step_that_calls_that_of_its_base_class_is_one_step():
    """torch calls the hooks of both, once an optimizer of the base class has been made."""
    model = nn.Linear(2, 2)
    torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = Wrapped(model.parameters(), lr=0.1)
    sync = resync.attach(model, optimizer, resync.LocalSGD(period=2))
    for lr in (0.1, 0.0, 0.1):
        optimizer.param_groups[0]["lr"] = lr
        model(torch.ones(2)).sum().backward()
        with nullcontext() if lr else pytest.raises(ArithmeticError):
            optimizer.step()
    optimizer.step(lambda: model(torch.ones(2)).sum().backward())
    assert (sync.steps, sync.rounds) == (3, 1)


def test_an_optimizer_that_ignores_its_closure_is_an_error():
    model = nn.Linear(2, 2)
    torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = Deaf(model.parameters(), lr=0.1)
    resync.attach(model, optimizer, resync.AllReduce())
    with pytest.raises(RuntimeError, match="rank 0, step 1: the optimizer has not called its closure"):
        optimizer.step(lambda: None)


def test_a_model_is_free_after_finish():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        sync = resync.attach(model, optimizer, resync.LocalSGD(period=2))
        optimizer.step()
        sync.finish()
        assert sync.steps == 1


def test_a_model_is_free_after_detach_and_keeps_its_parameters():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = resync.attach(model, optimizer, resync.LocalSGD(period=2))
    with sync.consensus(), pytest.raises(RuntimeError, match="called inside `with consensus"):
        optimizer.step()
    before = model.weight.detach().clone()
    sync.detach()
    assert torch.equal(model.weight, before)
    resync.attach(model, optimizer, resync.LocalSGD(period=2))
    optimizer.step()
    assert sync.steps == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"total_steps": 0}, r"total_steps: found 0, allowed: integer >= 1"),
        ({"total_steps": 2.5}, r"total_steps: found 2\.5"),
        ({"warmup_steps": -1}, r"warmup_steps: found -1"),
        ({"clip_norm": 0.0}, r"clip_norm: found 0"),
        ({"clip_norm": 1.0}, r"^clip_norm: found 1 with LocalSGD\(.*\), which averages no gradients, allowed: None"),
    ],
)
def test_arguments_are_checked_when_attaching(given, message):
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=message):
        resync.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), METHODS["LocalSGD"], **given)
