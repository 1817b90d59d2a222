"""What an algorithm in somebody else's loop refuses or notices: an average must not silently not happen."""

import os
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from copy import copy, deepcopy
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from processes import TIMEOUT, run_processes
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import resync
from resync.workers.sync.options.base import SyncOptions

Loop = tuple[nn.Module, torch.optim.Optimizer, resync.Synchronised]
Change = Callable[[nn.Module, torch.optim.Optimizer], object]
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
CASES: dict[str, tuple[Callable[[int], list[str]], tuple[str, ...]]] = {}
"""What a rank finds by name, and what each line of it contains; {rank} stands for the rank."""


def case(*expected: str) -> Callable[[Any], Any]:
    def added(function: Callable[[int], list[str]]) -> Callable[[int], list[str]]:
        CASES[function.__name__.strip("_")] = function, expected
        return function

    return added


def _sgd(model: nn.Module, kind: type[torch.optim.Optimizer] = torch.optim.SGD) -> torch.optim.Optimizer:
    return kind(model.parameters(), lr=0.1)


def _model(rank: int) -> nn.Module:
    """A model with parameters of its own on every rank, the first layer frozen, and a buffer."""
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    return model


def _loop(rank: int, method: str = "LocalSGD", kind: type[torch.optim.Optimizer] = torch.optim.SGD) -> Loop:
    model = _model(rank)
    optimizer = _sgd(model, kind)
    return model, optimizer, resync.attach(model, optimizer, METHODS[method])


def _steps(model: nn.Module, optimizer: torch.optim.Optimizer, number: int, closure: bool = False) -> None:
    """Steps on data of this rank's own, in the usual order or with a closure."""

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        found: torch.Tensor = model(torch.randn(4, 3).to(next(model.parameters()).dtype)).square().sum()
        found.backward()
        return found

    for _ in range(number):
        if closure:
            optimizer.step(loss)
        else:
            loss()
            optimizer.step()


def _end(call: Callable[..., object], *arguments: Any) -> str:
    """How a call ends."""
    try:
        call(*arguments)
    except (RuntimeError, TypeError, ValueError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def _enter(sync: resync.Synchronised) -> None:
    sync.consensus().__enter__()


def _rebind(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model[2].weight.data = model[2].weight.data.clone()


def _replace(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model[2].bias = optimizer.param_groups[0]["params"][-1] = nn.Parameter(torch.zeros(2))


def _add(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.append(nn.Linear(2, 2))
    optimizer.add_param_group({"params": list(model[3].parameters())})


def _wrap(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.wrapper = [DistributedDataParallel(model)]  # in a list, so that it is no part of the model


def _attach_to_a_part(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    resync.attach(model[2], _sgd(model[2]), METHODS["LocalSGD"])


STORED = "of which is {}, are stored elsewhere than when"
STRANGE = "{} is trained and not averaged: it was added, replaced or unfrozen after"
CHANGES: dict[str, tuple[Change, str]] = {
    "half": (lambda model, _: model.half(), "4 parameters, the first " + STORED.format("1.weight")),
    "data": (_rebind, "1 parameters, the first " + STORED.format("2.weight")),
    "attached twice": (_attach_to_a_part, "2 parameters, the first " + STORED.format("2.weight")),
    "unfrozen": (lambda model, _: model[0].requires_grad_(), STRANGE.format("0.weight")),
    "replaced": (_replace, STRANGE.format("2.bias")),
    "added": (_add, STRANGE.format("3.weight")),
    "fewer": (lambda _, optimizer: optimizer.param_groups[0]["params"].pop(), "the optimizer has 5 parameters, 6 when"),
    "DistributedDataParallel": (_wrap, "the model is wrapped in DistributedDataParallel, which averages"),
}


def _change(rank: int, change: Change) -> list[str]:
    """How the step after a change ends, with two methods."""
    found = []
    for method in ("LocalSGD", "AllReduce"):
        model, optimizer, _ = _loop(rank, method)
        if change is not _wrap:
            _steps(model, optimizer, 1)
        change(model, optimizer)
        found.append(_end(_steps, model, optimizer, 1))
    return found


for name, (change, said) in CHANGES.items():
    step = 1 if change is _wrap else 2
    CASES[name] = partial(_change, change=change), (f"RuntimeError: rank {{rank}}, step {step}: {said}",) * 2


CALLS = ("step 1", "state_dict()", "finish()", "consensus()")


@case(*(f"RuntimeError: rank {{rank}}, {call}: 1 parameters, the first {STORED.format('weight')}" for call in CALLS))
def _memory_format(rank: int) -> list[str]:
    model = nn.Conv2d(2, 2, 3)
    optimizer = _sgd(model)
    sync = resync.attach(model, optimizer, METHODS["LocalSGD"])
    model.to(memory_format=torch.channels_last)
    return [*map(_end, (optimizer.step, sync.state_dict, sync.finish)), _end(_enter, sync)]


@case(
    *(f"rank {{rank}}, {call}: called inside `with consensus()`, whose" for call in (*CALLS[:3], "load_state_dict()")),
    "2 steps",
)
def _inside_consensus(rank: int) -> list[str]:
    model, optimizer, sync = _loop(rank)
    state = sync.state_dict()
    with sync.consensus():
        found = [_end(_steps, model, optimizer, 1), _end(sync.state_dict), _end(sync.finish)]
        found.append(_end(sync.load_state_dict, state))
    _steps(model, optimizer, 2)
    sync.finish()
    return [*found, f"{sync.steps} steps"]


@case("RuntimeError: rank {rank}, finish(): " + STRANGE.format("2.weight"))
def _untrained(rank: int) -> list[str]:
    """A new head that no optimizer has is in no average."""
    model, optimizer, sync = _loop(rank)
    model[2] = nn.Linear(3, 2)
    _steps(model, optimizer, 1)
    return [_end(sync.finish)]


class Opaque(torch.Tensor):
    """A tensor that does not say of which others it consists."""


REFUSED = {
    "fsdp": "weight is a shard of FullyShardedDataParallel, allowed: fully_shard, or whole parameters",
    "fully_shard": "weight is sharded over the ranks [0, 1], of which [0, 1] are workers",
    "compiled ddp": "_orig_mod of the model is wrapped in DistributedDataParallel, allowed: the model",
    "meta": "weight is on the meta device and has no values",
    "order": "rank 0 has parameter 0.weight: float32 [3, 2], rank 1 has parameter 0.weight: float32 [2, 3]",
    "frozen": "rank 0 has parameter weight: float32 [2, 2], rank 1 has parameter weight: float32 [2, 2], frozen",
    "periods": "the ranks attach different things: rank 0 has LocalSGD(period=Constant(h=2)) ",
    "again": "an algorithm is attached to this model already: end it with finish(), or after",
    "strangers": "the optimizer has parameters that the model does not have, of shape (7,): they would",
    "missing": "the optimizer does not have these parameters of the model: bias",
    "no parameters": "trainable parameters must exist and share one dtype, found: none",
    "opaque": "parameter frozen is a Opaque, allowed: plain tensors, DTensors of fully_shard, or frozen ones",
    "torch's integers": "parameter frozen is of torch.qint8, whose scales are not shared, allowed: tensors of torchao",
    "sharded optimizer": "ZeroRedundancyOptimizer copies parameters between the workers in every step, allowed with it",
    "sparse buffer": "buffer mask is sparse or packed (torch.sparse_coo), allowed: dense tensors",
    "sparse parameter": "parameter frozen is sparse or packed (torch.sparse_csr), allowed: dense tensors",
    "lazy buffer": "without a shape yet: run one forward pass first",
}


@case(*REFUSED.values())
def _refused(rank: int) -> list[str]:
    """What attaching says of models and options."""
    mesh, cpu = init_device_mesh("cpu", (2,)), torch.device("cpu")
    wrapped = DistributedDataParallel(nn.Linear(2, 2))
    models: dict[str, nn.Module] = {
        "fsdp": FullyShardedDataParallel(nn.Linear(4, 4), device_id=cpu, use_orig_params=True),
        "fully_shard": fully_shard(nn.Linear(4, 4), mesh=mesh),
        "compiled ddp": torch.compile(wrapped),
        "meta": nn.Linear(2, 2, device="meta"),
        "order": nn.Sequential(*[nn.Linear(2, 3), nn.Linear(3, 2)][:: -1 if rank else 1]),
        "frozen": nn.Linear(2, 2).requires_grad_(rank == 0),
        "periods": nn.Linear(2, 2),
        "again": _loop(rank)[0],
        "strangers": nn.Linear(2, 2),
        "missing": nn.Linear(2, 2),
        "no parameters": nn.Linear(2, 2).requires_grad_(False),
        "opaque": nn.Linear(2, 2),
        "torch's integers": nn.Linear(2, 2),
        "sharded optimizer": nn.Linear(2, 2),
        "sparse buffer": nn.Linear(2, 2),
        "sparse parameter": nn.Linear(2, 2),
        "lazy buffer": nn.Sequential(nn.Linear(2, 2), nn.LazyBatchNorm1d(affine=False)),
    }
    models["sparse buffer"].register_buffer("mask", torch.eye(4).to_sparse())
    for name, frozen in {
        "sparse parameter": torch.eye(4).to_sparse_csr(),
        "opaque": torch.eye(4).as_subclass(Opaque),
        "torch's integers": torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.qint8),
    }.items():
        models[name].frozen = nn.Parameter(frozen, requires_grad=False)
    found = []
    for name, model in models.items():
        optimizer = _sharded(model) if name == "sharded optimizer" else _sgd(model)
        own = {} if name != "sparse buffer" else {"weight": model.weight.detach().clone()}
        if name == "strangers":
            optimizer.add_param_group({"params": [nn.Parameter(torch.ones(7))]})
        if name == "missing":
            optimizer.param_groups[0]["params"].pop()
        period = 2 + rank if name == "periods" else 2
        found.append(_end(resync.attach, model, optimizer, resync.LocalSGD(period=period)))
        assert all(torch.equal(model.state_dict()[key], value) for key, value in own.items())
    return found


def _sharded(model: nn.Module) -> torch.optim.Optimizer:
    return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.1)


REFUSED_WITH_SHARDS = {
    "parameters": resync.AllReduce(average="parameters"),
    "SlowMo": resync.SlowMo(period=2, base="allreduce", buffers="zero"),
    "PALSGD": resync.PALSGD(period=2, start=2),
}


@case(*["UserError: ZeroRedundancyOptimizer copies"] * len(REFUSED_WITH_SHARDS), "the same", "the same")
def _sharded_optimizer(rank: int) -> list[str]:
    """An optimizer of which every rank has a part: refused, or as one that is whole."""
    found = []
    for algorithm in REFUSED_WITH_SHARDS.values():
        model = _model(rank)
        found.append(_end(resync.attach, model, _sharded(model), algorithm))
    for algorithm in (resync.AllReduce(), resync.GPA(h=3)):
        ends = []
        for make in (_sharded, partial(_sgd, kind=torch.optim.Adam)):
            model = _model(0)
            model[0].requires_grad_()
            optimizer = make(model)
            sync = resync.attach(model, optimizer, algorithm)
            torch.manual_seed(10 + rank)
            _steps(model, optimizer, 4)
            sync.finish()
            ends.append(nn.utils.parameters_to_vector(model.parameters()))
        found.append("the same" if torch.equal(*ends) else "not the same")
    return found


@case(*["rank {rank}, step 1: the gradient of 0.weight is sparse and cannot be averaged, allowed"] * 2, "no error")
def _sparse_gradients(rank: int) -> list[str]:
    found = []
    for algorithm in (resync.AllReduce(), resync.GPA(), METHODS["LocalSGD"]):
        model = nn.Sequential(nn.Embedding(4, 2, sparse=True), nn.Linear(2, 1))
        optimizer = _sgd(model)
        sync = resync.attach(model, optimizer, algorithm)
        model(torch.tensor([rank])).sum().backward()
        found.append(_end(optimizer.step))
        sync.detach()
    return found


@case(*["TypeError: an attached algorithm cannot be copied or pickled"] * 3)
def _copies(rank: int) -> list[str]:
    """Of Streaming DiLoCo while a fragment travels, too."""
    model = _model(rank)
    optimizer = _sgd(model)
    sync = resync.attach(model, optimizer, resync.StreamingDiLoCo(period=4, fragments=2, delay=1))
    _steps(model, optimizer, 1)
    assert sync.algorithm.in_flight
    found = [_end(each, sync) for each in (copy, deepcopy, pickle.dumps)]
    sync.finish()
    return found


COUNTS = "the ranks are not in step: rank 0: {0} after 2 steps in 1 rounds; rank 1: {0} after 3 steps in 1 rounds"


@case(
    *(f"RuntimeError: rank {{rank}}, {call}: {COUNTS.format(call)}" for call in ("consensus()", "finish()")),
    "rank 0: consensus() after 0 steps in 0 rounds; rank 1: finish() after 0 steps in 0 rounds",
)
def _out_of_step(rank: int) -> list[str]:
    """Rank 1 makes a step more within the round, rank 0 averages once more, and rank 1 does something else."""
    found = []
    for call in (_enter, resync.Synchronised.finish):
        model, optimizer, sync = _loop(rank)
        _steps(model, optimizer, 2 + rank)
        found.append(_end(call, sync))
    *_, sync = _loop(rank)
    return [*found, _end(sync.finish) if rank else _end(_enter, sync)]


CLOSURES = [
    *((method, kind) for method in METHODS if method != "ADPSGD" for kind in (torch.optim.SGD, torch.optim.Adam)),
    *((method, torch.optim.LBFGS) for method in ("LocalSGD", "DPSGD", "Lookahead")),
]


def _closures(rank: int) -> list[list[np.ndarray]]:
    """The parameters after steps with a closure and, where the optimizer can, in the usual order."""
    found = []
    for method, kind in CLOSURES:
        ends = []
        for closure in (True, False) if kind is not torch.optim.LBFGS else (True,):
            model, optimizer, sync = _loop(rank, method, kind)
            torch.manual_seed(10 + rank)
            _steps(model, optimizer, 4, closure)
            sync.finish()
            ends.append(nn.utils.parameters_to_vector(model.parameters()).detach().numpy())
        found.append(ends)
    return found


@case(
    *["RuntimeError: rank {rank}, step 1: the optimizer calls its closure more than once"] * 4,
    *["RuntimeError: rank {rank}, finish(): step 1 was interrupted"] * 4,
)
def _many_gradients(rank: int) -> list[str]:
    loops = [_loop(rank, method, torch.optim.LBFGS) for method in ("AllReduce", "OSGP", "SlowMo", "ADPSGD")]
    found = [_end(_steps, model, optimizer, 1, True) for model, optimizer, _ in loops]
    return [*found, *(_end(sync.finish) for *_, sync in loops)]


def _start(rank: int) -> dict[str, np.ndarray]:
    """All tensors of a model after attaching, in which nothing is equal before."""
    model = _model(rank)
    model[1].running_mean.fill_(rank)
    model[1].num_batches_tracked.fill_(rank)
    model.register_buffer("mask", torch.tensor([rank == 0, True]))
    model.register_buffer("none", None)
    model.register_buffer("expanded", torch.full((1,), rank).expand(2, 3))
    model.register_buffer("image", torch.rand(1, 2, 2, 2).to(memory_format=torch.channels_last), persistent=False)
    resync.attach(model, _sgd(model), METHODS["LocalSGD"])
    return {name: each.detach().numpy().copy() for name, each in [*model.named_parameters(), *model.named_buffers()]}


_UNKNOWN = "UserError: rank {rank}, load_state_dict(): found the state of parameters with SHA-256 "


@case(_UNKNOWN, "no error in rank {rank} after 1 steps")
def _resumed(rank: int) -> list[str]:
    """A state in the middle of a round, and the model's state loaded never, and after attaching."""
    model, optimizer, sync = _loop(rank)
    _steps(model, optimizer, 1)
    saved = [deepcopy(each.state_dict()) for each in (model, sync)]
    *_, attached = _loop(rank)
    found = [_end(attached.load_state_dict, saved[1])]
    again, _, attached = _loop(rank)
    again.load_state_dict(saved[0])
    return [*found, f"{_end(attached.load_state_dict, saved[1])} in rank {rank} after {attached.steps} steps"]


_OTHERS = {
    "rank": "rank {other} of 2, allowed: rank {rank} of 2",
    "number of workers": "rank 5 of 9, allowed: rank {rank} of 2",
    "algorithm": "AllReduce() with seed 0, allowed: LocalSGD(period=Constant(h=2)) with seed 0",
    "seed": "LocalSGD(period=Constant(h=2)) with seed 1, allowed: LocalSGD(period=Constant(h=2)) with seed 0",
    "name": "parameter weight: float32 [2, 2], allowed: parameter 0.weight: float32 [2, 2]",
    "swapped": "parameters with SHA-256 ",
    "older version": "nothing, allowed: rank {rank} of 2",
}


@case(*(f"UserError: rank {{rank}}, load_state_dict(): found the state of {found}" for found in _OTHERS.values()))
def _others(rank: int) -> list[str]:
    """States of another rank, number of workers, algorithm, seed, model, or with matrices that are swapped."""

    def attached(algorithm: SyncOptions = METHODS["LocalSGD"], model: nn.Module | None = None, **given: Any) -> Loop:
        torch.manual_seed(0)
        model = model or nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        optimizer = _sgd(model)
        return model, optimizer, resync.attach(model, optimizer, algorithm, **given)

    def after(other: Loop) -> dict[str, Any]:
        return deepcopy(other[2].state_dict())

    model, _, sync = attached()
    own = after((model, _, sync))
    everybodys: list[Any] = [None, None]
    dist.all_gather_object(everybodys, own)
    states: dict[str, dict[str, Any]] = {
        "rank": everybodys[1 - rank],
        "number of workers": own | {"identity": ["rank 5 of 9", *own["identity"][1:]]},
        "algorithm": after(attached(resync.AllReduce())),
        "seed": after(attached(seed=1)),
        "name": after(attached(model=nn.Linear(2, 2))),
        "swapped": own,
        "older version": {key: value for key, value in own.items() if key != "identity"},
    }
    found = []
    for name, state in states.items():
        if name == "swapped":
            one, other = model[0].weight, model[1].weight
            with torch.no_grad():
                one[:], other[:] = other.clone(), one.clone()
        found.append(_end(sync.load_state_dict, state).replace(f"of rank {1 - rank} of", "of rank {other} of"))
    return found


def _resumed_before(rank: int) -> str:
    """The model's state loaded before attaching, which puts the parameters of rank 0 into all."""
    model, optimizer, sync = _loop(rank)
    _steps(model, optimizer, 1)
    again = _model(rank)
    again.load_state_dict(model.state_dict())
    return _end(resync.attach(again, _sgd(again), METHODS["LocalSGD"]).load_state_dict, deepcopy(sync.state_dict()))


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


def _absent(rank: int) -> str:
    """How `finish` ends where rank 1 does not come until rank 0 has given up."""
    model, optimizer, sync = _loop(rank)
    assert sync._meetings.limit == timedelta(seconds=TIMEOUT)
    sync._meetings.limit = timedelta(seconds=0.01)
    _steps(model, optimizer, 2)
    found = "" if rank else _end(sync.finish)
    dist.barrier()
    return found


OTHERS = (_closures, _start, _resumed_before, _freezing, _absent)


def _all(rank: int, world_size: int) -> dict[str, Any]:
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    found: dict[str, Any] = {name: function(rank) for name, (function, _) in CASES.items()}
    return found | {function.__name__: function(rank) for function in OTHERS}


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    """What two processes found in every case."""
    return run_processes(2, _all)


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_averaged_is_an_error_that_names_rank_call_and_reason(ranks, name):
    for rank, found in enumerate(ranks):
        for text, expected in zip(found[name], CASES[name][1], strict=True):
            assert expected.replace("{rank}", str(rank)) in text


def _attached_too_early(rank: int, world_size: int, folder: Path) -> list[str]:
    """How calls end where the process group is made after attaching, and where it is gone."""
    *both, ended = _loop(rank)
    dist.destroy_process_group()
    model, optimizer, sync = _loop(rank)
    found = [_end(_steps, *both, 1), _end(ended.finish)]
    _steps(model, optimizer, 1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    return [*found, _end(_steps, model, optimizer, 1), _end(sync.finish), _end(_enter, sync), _end(sync.state_dict)]


def test_a_process_group_that_is_not_that_of_attaching_is_an_error(tmp_path):
    calls = ("step 1", "finish()", "step 2", "finish()", "consensus()", "state_dict()")
    for rank, found in enumerate(run_processes(2, _attached_too_early, tmp_path)):
        for text, call, (own, now, before) in zip(found, calls, [(rank, 1, 2)] * 2 + [(0, 2, 1)] * 4, strict=True):
            assert f"rank {own}, {call}: torch.distributed has {now} processes, {before} when the algorithm" in text


def test_a_rank_that_does_not_come_is_named_within_the_time_limit(ranks):
    start = "TimeoutError: rank 0, finish() after 2 steps: rank 1 did not come within 0:00:00.01"
    assert ranks[0]["_absent"].startswith(start)


@pytest.mark.parametrize("number", range(len(CLOSURES)), ids=[f"{name}-{kind.__name__}" for name, kind in CLOSURES])
def test_steps_with_a_closure_are_those_without(ranks, number):
    ends = [found["_closures"][number] for found in ranks]
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
    for end in ends:
        assert all(np.array_equal(each, end[0]) for each in end)


def test_everything_in_a_model_starts_as_on_rank_0(ranks):
    one, other = (found["_start"] for found in ranks)
    assert len(one) == 6 + 6
    for name, value in one.items():
        assert np.array_equal(other[name], value), name
    assert one["mask"].tolist() == [True, True]


def test_a_state_whose_parameters_attaching_has_overwritten_is_refused(ranks):
    """Those of rank 0 are there on rank 0 alone."""
    assert ranks[0]["_resumed_before"] == "no error"
    assert _UNKNOWN.replace("{rank}", "1") in ranks[1]["_resumed_before"]


def test_a_layer_may_be_frozen_later(ranks):
    assert ranks[0]["_freezing"] == ranks[1]["_freezing"]


class Wrapped(torch.optim.SGD):
    """An optimizer whose step is that of its base class, which may raise first."""

    def step(self, closure: Any = None) -> Any:
        """A step of SGD, unless the learning rate is 0."""
        if not self.param_groups[0]["lr"]:
            raise ArithmeticError
        return super().step(closure)


class Deaf(torch.optim.SGD):
    """An optimizer that ignores its closure."""

    def step(self, closure: Any = None) -> None:
        """A step on the gradients that are there."""
        super().step()


def _alone(kind: type[torch.optim.Optimizer] = torch.optim.SGD, method: str = "LocalSGD") -> Loop:
    """A loop of one worker; torch calls the hooks of a base class once an optimizer of it has been made."""
    model = nn.Linear(2, 2)
    _sgd(model)
    optimizer = _sgd(model, kind)
    return model, optimizer, resync.attach(model, optimizer, METHODS[method])


def test_a_step_that_calls_that_of_its_base_class_is_one_step():
    model, optimizer, sync = _alone(Wrapped)
    for lr in (0.1, 0.0, 0.1):
        optimizer.param_groups[0]["lr"] = lr
        model(torch.ones(2)).sum().backward()
        with nullcontext() if lr else pytest.raises(ArithmeticError):
            optimizer.step()
    optimizer.step(lambda: model(torch.ones(2)).sum().backward())
    assert (sync.steps, sync.rounds) == (3, 1)


def test_an_optimizer_that_ignores_its_closure_is_an_error():
    _, optimizer, _ = _alone(Deaf, "AllReduce")
    with pytest.raises(RuntimeError, match="rank 0, step 1: the optimizer has not called its closure"):
        optimizer.step(lambda: None)


def test_a_model_is_free_after_finish_and_after_detach_which_keeps_its_parameters():
    model, optimizer, sync = _alone()
    optimizer.step()
    sync.finish()
    sync = resync.attach(model, optimizer, METHODS["LocalSGD"])
    with sync.consensus(), pytest.raises(RuntimeError, match="called inside `with consensus"):
        optimizer.step()
    before = model.weight.detach().clone()
    sync.detach()
    assert torch.equal(model.weight, before)
    resync.attach(model, optimizer, METHODS["LocalSGD"])
    optimizer.step()
    assert sync.steps == 0


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("LocalSGD", {"total_steps": 0}, r"total_steps: found 0, allowed: integer >= 1"),
        ("LocalSGD", {"warmup_steps": -1}, r"warmup_steps: found -1"),
        ("LocalSGD", {"clip_norm": 0.0}, r"clip_norm: found 0"),
        ("LocalSGD", {"clip_norm": 1.0}, r"^clip_norm: found 1 with LocalSGD\(.*\), which averages no gradients"),
        ("parameters", {"clip_norm": 1.0}, r"^clip_norm: found 1 with AllReduce\(.*\), which averages no gradients"),
        ("half a step", {}, r"^SGP: peers.*: found 2\.6, allowed: a whole number of steps"),
    ],
)
def test_arguments_are_checked_when_attaching(method, given, message):
    model = nn.Linear(2, 2)
    more = {
        "parameters": resync.AllReduce(average="parameters"),
        "half a step": resync.SGP(peers=[(0, 0), (2.6, 1)]),
    }
    with pytest.raises(ValueError, match=message):
        resync.attach(model, _sgd(model), (METHODS | more)[method], **given)
