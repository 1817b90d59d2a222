"""What all ranks decide together, for every method: which parameters have gradients and state, and what is refused."""

import warnings
from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
import torch
from processes import run_processes
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

import resync
from resync import library
from resync.base.processes.meeting import StoreAllGather
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.members import Members
from resync.workers.engine.transport import Transport
from resync.workers.sync import options
from resync.workers.sync.options.base import SyncOptions
from resync.workers.sync.outer import keep_on_cpu

METHODS: dict[str, SyncOptions] = {
    "AllReduce": resync.AllReduce(),
    "AllReduce of parameters": resync.AllReduce(average="parameters", all_reduce="ring"),
    "LocalSGD": resync.LocalSGD(period=2),
    "LocalSGD with state": resync.LocalSGD(period=2, average_state=["exp_avg", "exp_avg_sq"]),
    "QSR": resync.QSR(alpha=0.1, h_base=2),
    "SGP": resync.SGP(),
    "SGP with state": resync.SGP(average_state=["exp_avg", "exp_avg_sq"]),
    "SGP, random": resync.SGP(topology="random"),
    "OSGP": resync.OSGP(),
    "DPSGD": resync.DPSGD(),
    "D2": resync.D2(),
    "GradientTracking": resync.GradientTracking(),
    "RelaySum": resync.RelaySum(topology="chain"),
    "RelaySum of gradients": resync.RelaySum(topology="chain", relayed="gradient"),
    "ADPSGD": resync.ADPSGD(asynchronous=True),
    "SlowMo": resync.SlowMo(period=2, base="allreduce", buffers="keep"),
    "SlowMo with state": resync.SlowMo(period=2, buffers="average"),
    "DiLoCo": resync.DiLoCo(period=2),
    "DiLoCo, bfloat16": resync.DiLoCo(period=2, compression="bfloat16"),
    "DiLoCoProgress": resync.DiLoCoProgress(period=2, reference=0.2),
    "StreamingDiLoCo": resync.StreamingDiLoCo(period=4, fragments=2, delay=1),
    "StreamingDiLoCo, int8": resync.StreamingDiLoCo(period=4, fragments=2, delay=1, compression="int8"),
    "StreamingDiLoCo, bfloat16": resync.StreamingDiLoCo(period=4, fragments=2, delay=1, compression="bfloat16"),
    "SNOO": resync.SNOO(period=2),
    "GPA": resync.GPA(h=3),
    "PALSGD": resync.PALSGD(period=2, start=6),
    "DESLOC": resync.DESLOC(period=2, first_moment_period=2, second_moment_period=2),
    "NoLoCo": resync.NoLoCo(period=2),
    "Lookahead": resync.Lookahead(period=2),
}
EQUAL = [name for name, method in METHODS.items() if method.needs.average_gradients]
"""Those whose workers are equal after every step, in the first steps at least."""
STATE = ["LocalSGD with state", "SGP with state", "SlowMo with state", "DESLOC"]
"""Those that average the optimizer's state."""
STREAMING = ["StreamingDiLoCo", "StreamingDiLoCo, int8", "StreamingDiLoCo, bfloat16"]
"""Those that send a row in parts."""


def test_the_methods_are_all_of_the_library():
    assert {type(each).__name__ for each in METHODS.values()} >= set(options.__all__) - {
        "QSR",
        "Lookahead",
    }  # which are LocalSGD and SlowMo
    assert set(EQUAL) == {"AllReduce", "SlowMo", "SNOO", "GPA", "PALSGD"}


def _attached(
    name: str, model: nn.Module, kind: type[torch.optim.Optimizer] = torch.optim.AdamW, **settings: Any
) -> tuple[torch.optim.Optimizer, resync.Synchronised]:
    optimizer = kind(model.parameters(), **{"lr": 0.1} | settings)
    return optimizer, resync.attach(model, optimizer, METHODS[name], total_steps=20, warmup_steps=0)


def _two_layers() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 1)})


def _flat(values: Any) -> list[float]:
    return torch.cat([torch.view_as_real(each.detach().to(torch.complex128)).flatten() for each in values]).tolist()


def _zero_and_none(rank: int, name: str) -> list[list[float]]:
    """The ends of the second layer, whose gradient is zero on rank 0 and zero or not there on rank 1."""
    ends = []
    for on_both in (True, False):
        model = _two_layers()
        optimizer, sync = _attached(name, model, torch.optim.SGD, momentum=0.9, weight_decay=0.1)
        for step in range(5):
            loss = model["a"](torch.ones(2, 3) * (rank + 1)).mean()
            if step < 2:
                loss = loss + model["b"](torch.ones(2, 3)).mean()
            elif rank == 0 or on_both:
                loss = loss + 0 * model["b"](torch.ones(2, 3)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ends.append(_flat(model["b"].parameters()))
        sync.finish()
    return ends


def _moments(rank: int, name: str) -> list[Any]:
    """The second layer's state: only rank 0 uses it, and rank 1 nothing else or nothing at all before the average."""
    found: list[Any] = []
    for alone in (False, True):
        model = _two_layers()
        optimizer, sync = _attached(name, model)
        for step in range(4):
            optimizer.zero_grad()
            if rank == 0 or not alone or step > 1:
                model["a"](torch.ones(2, 3)).mean().backward()
            if rank == 0:
                model["b"](torch.ones(2, 3)).mean().backward()
            optimizer.step()
        states = [optimizer.state[each] for each in model["b"].parameters()]
        found.append([_flat(state[name] for state in states) for name in ("exp_avg", "exp_avg_sq", "step")])
        sync.finish()
    return found


def _modes(rank: int, name: str) -> list[list[float]]:
    """The ends of trainings that are evaluated, saved and resumed in each mode of torch."""
    ends = []
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        model = _two_layers()
        with mode():
            optimizer, sync = _attached(name, model)

        def steps(number: int, model: nn.ModuleDict = model, optimizer: torch.optim.Optimizer = optimizer) -> None:
            for _ in range(number):
                optimizer.zero_grad()
                (model["b"](torch.ones(3, 3)) * model["a"](torch.ones(3, 3)) * (rank + 1)).mean().backward()
                optimizer.step()

        steps(3)
        own = deepcopy(model.state_dict()), deepcopy(optimizer.state_dict())
        with mode():
            state = deepcopy(sync.state_dict())
        steps(2)
        with torch.no_grad():
            model.load_state_dict(own[0])
        optimizer.load_state_dict(own[1])
        with mode():
            sync.load_state_dict(state)
            with sync.consensus() as average:
                average["a"](torch.ones(1, 3))
        steps(3)
        with mode():
            sync.finish()
        ends.append(_flat(model.parameters()))
    return ends


class Complex(nn.Module):
    """A complex parameter of which a conjugate is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1 + 1j, 2 - 1j]))
        self.conjugate = nn.Parameter(torch.tensor([1 + 2j]).conj())
        self.register_buffer("phase", torch.tensor([1 + 2j]).conj())
        self.register_buffer("imaginary", torch.tensor([1 + 2j]).conj().imag)


def _complex(rank: int, name: str) -> list[float]:
    model = Complex()
    optimizer, sync = _attached(name, model)
    for _ in range(8):
        optimizer.zero_grad()
        sum((each - 1j * (rank + 1)).abs().square().sum() for each in model.parameters()).backward()
        optimizer.step()
    with sync.consensus():
        pass
    sync.load_state_dict(sync.state_dict())
    sync.finish()
    assert model.phase == 1 - 2j
    assert model.imaginary == -2
    return _flat(model.parameters())


class Quantised(Tensor):
    """A wrapper of int8 and one scale, as the tensors of quantised weights are."""

    values: Tensor
    scale: Tensor

    @staticmethod
    def __new__(cls, values: Tensor, scale: Tensor) -> Any:
        """A tensor that shows as float32, and has no memory of its own."""
        return Tensor._make_wrapper_subclass(cls, values.shape, dtype=torch.float32)

    def __init__(self, values: Tensor, scale: Tensor) -> None:
        self.values, self.scale = values, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["values", "scale"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """It can be detached, and moved into a Parameter; to compute with it, take its parts."""
        assert func is torch.ops.aten.detach.default, f"{func} of a frozen weight"
        return Quantised(args[0].values, args[0].scale)


class Adapted(nn.Module):
    """A frozen int8 weight with bfloat16 adapters, which differs between the ranks, and a float32 norm beside it."""

    def __init__(self, rank: int, trained: str) -> None:
        super().__init__()
        torch.manual_seed(rank)
        self.base = nn.Parameter(
            Quantised(torch.randint(-9, 9, (3, 2), dtype=torch.int8), torch.rand(3, 1)), requires_grad=False
        )
        self.codes = nn.Parameter(torch.randint(0, 9, (3,), dtype=torch.uint8), requires_grad=False)
        self.down, self.up = (nn.Parameter(torch.randn(shape).bfloat16()) for shape in ((1, 2), (3, 1)))
        self.gain, self.shift = nn.Parameter(torch.rand(3)), nn.Parameter(torch.rand(()))
        for name in {"adapters": ["gain", "shift"], "norm": ["down", "up"], "all": []}[trained]:
            getattr(self, name).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """A loss in which no gradient of the adapters depends on the norm, nor the other way round."""
        weight = self.base.values * self.base.scale + (self.up @ self.down).float()
        return (x @ weight.T - 1).square().mean() + (x.sum() * self.gain + self.shift).square().mean()


def _mixed(rank: int, name: str) -> dict[str, Any]:
    """The ends of trainings of both dtypes, of each alone, and of both saved and resumed."""
    found: dict[str, Any] = {}
    for training in ("all", "adapters", "norm", "resumed"):
        model = Adapted(rank, "all" if training == "resumed" else training)
        optimizer, sync = _attached(name, model)

        def steps(number: int, model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> None:
            for _ in range(number):
                optimizer.zero_grad()
                model(torch.ones(2) * (rank + 1)).backward()
                optimizer.step()

        steps(5)
        if training == "resumed":
            parts = deepcopy([[each.data.clone() for each in _trained(model)], optimizer.state_dict()])
            state = deepcopy(sync.state_dict())
            steps(2)
            for each, value in zip(_trained(model), parts[0], strict=True):
                each.data.copy_(value)
            optimizer.load_state_dict(parts[1])
            sync.load_state_dict(state)
        steps(4)
        with sync.consensus():
            found[training, "average"] = _flat(_trained(model))
        sync.finish()
        found[training] = _flat(_trained(model))
    return found | {"frozen": _flat([model.base.values, model.base.scale, model.codes]), "bytes": sync.bytes_sent}


def _scalar(rank: int, name: str) -> list[float]:
    """The end of a training beside whose bfloat16 row is one of a single float32 number, fewer than fragments."""
    model = nn.ParameterList([torch.ones(8).bfloat16(), torch.ones(())])
    optimizer, sync = _attached(name, model, torch.optim.SGD)
    for _ in range(8):
        optimizer.zero_grad()
        (model[0].float().sum() + model[1] * rank).backward()
        optimizer.step()
    sync.load_state_dict(sync.state_dict())
    sync.finish()
    return torch.stack([model[0].float().mean(), model[1]]).tolist()


def _clipped(rank: int) -> list[float]:
    """A step of clipped gradients, of which the average over the ranks is 3 for each of 4 numbers of two dtypes."""
    model = nn.ParameterList([torch.zeros(3), torch.zeros((), dtype=torch.float64)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    sync = resync.attach(model, optimizer, resync.AllReduce(), clip_norm=1.0)
    (3 * model[0].sum() + 6 * rank * model[1]).backward()
    optimizer.step()
    found = torch.cat([model[0], model[1].view(1)]).tolist()
    for _ in range(2):
        optimizer.step()
    assert sync.advise().average > 0
    sync.finish()
    return found


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [each for each in model.parameters() if each.requires_grad]


class Far(Tensor):
    """What stands in for the memory of another device: it can be moved, and not be computed with."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Allow what is possible between devices."""
        name = func.__name__
        assert name in ("to", "copy_", "clone", "__getitem__", "__get__", "__deepcopy__"), f"{name} of stored tensors"
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **kwargs or {})
        if name == "to":
            return found.clone().as_subclass(Tensor)
        return found.as_subclass(cls) if name in ("__getitem__", "clone") else found


def _offloaded(rank: int, name: str) -> list[Any]:
    """The end of a training, and how many vectors are stored elsewhere: not at all, in CPU memory, and far away."""
    found: list[Any] = []
    for offload, keep in ((None, None), ("cpu", keep_on_cpu), ("cpu", lambda each: each.clone().as_subclass(Far))):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(library, "keep_on_cpu", keep)
            model = _two_layers()
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            sync = resync.attach(model, optimizer, METHODS[name], total_steps=20, warmup_steps=0, offload=offload)
        for _ in range(9):
            optimizer.zero_grad()
            (model["b"](torch.ones(3, 3)) * model["a"](torch.ones(3, 3)) * (rank + 1)).mean().backward()
            optimizer.step()
        sync.load_state_dict(sync.state_dict())
        with sync.consensus():
            pass
        far = sum(each.shape.numel() for each in vars(sync.algorithm).values() if isinstance(each, Far))
        sync.finish()
        found += [_flat(model.parameters()), far / 8]
    return found


FOLLOWING = {
    "QSR": resync.QSR(alpha=0.2, h_base=2),
    "SlowMo": resync.SlowMo(period=3),
    "SlowMo on SGP": resync.SlowMo(period=3, base="sgp"),
    "DiLoCoProgress": resync.DiLoCoProgress(period=3, reference=0.2),
}


def _rates(rank: int, name: str) -> str:
    """How a training ends in which the rate of rank 1 is lower from step 3 on."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = resync.attach(model, optimizer, FOLLOWING[name], total_steps=40, warmup_steps=0)
    try:
        for step in range(40):
            optimizer.param_groups[0]["lr"] = 0.05 if rank and step >= 2 else 0.1
            model(torch.ones(2)).sum().backward()
            optimizer.step()
    except RuntimeError as error:
        sync.detach()
        return str(error)
    return "no error"


def _large(rank: int, dtype: torch.dtype) -> list[float]:
    """Means of numbers whose sum is infinite, of 2 workers."""
    largest = torch.finfo(dtype).max
    rows = torch.full((1, 4), largest, dtype=dtype)
    transport = Transport(Members(2, 1, rank, 2), Clocks(torch.device("cpu")))
    found = [transport.post_mean(rows).wait(), transport.packed_mean(rows, "bfloat16") / 1.5]
    for name in ("default", "ring", "recursive_doubling"):
        found.append(rows.clone())
        transport.mean_(found[-1], name)
    return [each.flatten()[-1].item() / largest for each in found]


def _tries(rank: int) -> list[str]:
    """What a rank hears: rank 1 has tried three times alone, and rank 0 once."""
    heard = []
    for trying in (1, 0):
        for number in range((1 + 2 * rank) if trying == rank else 0):
            try:
                StoreAllGather("tries", rank, 2, timedelta(seconds=0.01)).begin(f"try {number}")
            except TimeoutError as error:
                heard.append(str(error).split(" within")[0])
        torch.distributed.barrier()
    for number in range(2):
        meetings = StoreAllGather("tries", rank, 2, timedelta(seconds=600))
        meetings.begin("attaching")
        heard += meetings.meet("said", f"{rank} {number}")
    return heard


def _memory(rank: int, name: str) -> float:
    """How many vectors of all parameters a method keeps between two steps, beside the row that the model is."""
    model = nn.Linear(100, 100)
    optimizer, sync = _attached(name, model)
    for _ in range(8):
        model(torch.ones(1, 100)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    kept: dict[int, int] = {}
    _add_storages(sync, kept, set())
    del kept[model.weight.untyped_storage().data_ptr()]
    sync.finish()
    return sum(kept.values()) / model.weight.element_size() / 10_100


def _add_storages(value: Any, kept: dict[int, int], seen: set[int]) -> None:
    """Add the sizes of all storages that our objects hold, by address."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
    elif isinstance(value, dict):
        value = list(value.values())
    elif type(value).__module__.startswith("resync.") and hasattr(value, "__dict__"):
        value = list(vars(value).values())
    for each in value if isinstance(value, (list, tuple)) else ():
        _add_storages(each, kept, seen)


OF_ALL: list[Callable[[int, str], Any]] = [_modes, _complex, _memory, _mixed, _offloaded]


def _all(rank: int, world_size: int) -> dict[Any, Any]:
    torch.distributed.barrier()
    warnings.simplefilter("ignore")
    found: dict[Any, Any] = {(case.__name__, name): case(rank, name) for case in OF_ALL for name in METHODS}
    found |= {("_zero_and_none", name): _zero_and_none(rank, name) for name in METHODS if name not in STATE}
    found |= {("_moments", name): _moments(rank, name) for name in STATE}
    found |= {("_rates", name): _rates(rank, name) for name in FOLLOWING}
    found |= {("_large", dtype): _large(rank, dtype) for dtype in (torch.float32, torch.bfloat16, torch.float64)}
    found |= {("_scalar", name): _scalar(rank, name) for name in STREAMING}
    return found | {"_tries": _tries(rank), "_clipped": _clipped(rank)}


@pytest.fixture(scope="module")
def ranks() -> list[dict[Any, Any]]:
    """What two processes found."""
    return run_processes(2, _all)


@pytest.mark.parametrize("name", EQUAL)
def test_a_parameter_has_a_gradient_on_all_ranks_if_it_has_one_on_any(ranks, name):
    (of_both, of_one), others = (rank["_zero_and_none", name] for rank in ranks)
    assert of_one == of_both == others[0] == others[1]


@pytest.mark.parametrize("name", STATE)
def test_averaged_state_is_the_same_on_a_rank_that_had_none(ranks, name):
    one, other = (rank["_moments", name] for rank in ranks)
    for (first, second, steps), (their_first, their_second, their_steps) in zip(one, other, strict=True):
        assert first == their_first
        assert second == their_second
        assert all(first[::2])
        assert min(their_steps[::2]) >= 1
        assert max(their_steps) <= max(steps)


@pytest.mark.parametrize("name", [each for each in METHODS if each != "ADPSGD"])
def test_inference_mode_around_a_call_changes_nothing(ranks, name):
    for rank in ranks:
        one, *others = rank["_modes", name]
        assert all(each == one for each in others)


@pytest.mark.parametrize("name", METHODS)
def test_complex_parameters_keep_their_imaginary_parts(ranks, name):
    """They go towards those of the targets, on all ranks alike after finish()."""
    one, other = (rank["_complex", name] for rank in ranks)
    assert one == pytest.approx(other, abs=1e-5)
    assert one[1] > 1.05
    assert one[3] > -0.9


MEMORY = {name: 0 for name in METHODS} | {
    **{"AllReduce": 1, "SGP": 1, "SGP, random": 1, "DPSGD": 1, "SGP with state": 2, "OSGP": 2, "D2": 2, "ADPSGD": 2},
    **{"DiLoCo": 2, "DiLoCo, bfloat16": 2, "DiLoCoProgress": 2, "SlowMo with state": 2, "Lookahead": 2},
    **dict.fromkeys(STREAMING, 2.5),
    **{"SlowMo": 3, "SNOO": 3, "GPA": 3, "NoLoCo": 3},
    **{"RelaySum": 3, "RelaySum of gradients": 4, "GradientTracking": 4, "PALSGD": 4},
}
"""Vectors of all parameters, as docs/library.md has them."""


@pytest.mark.parametrize("name", METHODS)
def test_a_method_keeps_no_vector_that_it_does_not_need(ranks, name):
    for rank in ranks:
        assert rank["_memory", name] == pytest.approx(MEMORY[name], abs=0.1)


@pytest.mark.parametrize("name", METHODS)
def test_parameters_of_several_dtypes_train_as_those_of_each_would_alone(ranks, name):
    """Beside frozen ones of integers, which all have from rank 0."""
    one, other = (rank["_mixed", name] for rank in ranks)
    assert one["frozen"] == other["frozen"]
    assert len(set(one["frozen"])) > 5
    for found in (one, other):
        assert found["all", "average"] == pytest.approx(one["all", "average"], abs=0.02)
        assert found["all"] == pytest.approx(one["all"], abs=0.02)
        if name != "ADPSGD":
            assert found["bytes"] == one["bytes"] > 0
            assert found["all"] == found["adapters"] + found["norm"] == found["resumed"]
            assert found["all", "average"] == found["adapters", "average"] + found["norm", "average"]


STORED = {name: 0 for name in METHODS} | {"PALSGD": 1} | dict.fromkeys(STREAMING, 2) | dict.fromkeys(
    ("DiLoCo", "DiLoCo, bfloat16", "DiLoCoProgress", "SlowMo", "SlowMo with state", "SNOO", "NoLoCo", "Lookahead"), 2
)  # fmt: skip
"""Vectors of all parameters that only ends of rounds need, as docs/library.md has them."""


@pytest.mark.parametrize("name", STREAMING)
def test_a_row_may_have_fewer_numbers_than_fragments(ranks, name):
    one, other = (rank["_scalar", name] for rank in ranks)
    assert one == other
    assert one[1] == pytest.approx((one[0] + 1) / 2, abs=0.05)


def test_gradients_are_clipped_by_the_norm_of_all_dtypes(ranks):
    assert [rank["_clipped"] for rank in ranks] == [pytest.approx([-0.5] * 4, abs=1e-6)] * 2


@pytest.mark.parametrize("name", METHODS)
def test_what_only_ends_of_rounds_need_is_stored_elsewhere_and_no_step_uses_it(ranks, name):
    for rank in ranks:
        plain, none, on_cpu, too, far, vectors = rank["_offloaded", name]
        assert (none, too, vectors) == (0, 0, STORED[name])
        if name != "ADPSGD":
            assert plain == on_cpu == far


@pytest.mark.parametrize("name", FOLLOWING)
def test_learning_rates_that_differ_are_an_error_that_names_rate_rank_and_step(ranks, name):
    for rank, found in enumerate(ranks):
        error = found["_rates", name]
        assert error.startswith(f"rank {rank}, step ")
        assert "rank 0: the end of a round of H = " in error
        assert "rank 1: the end of a round of H = " in error
        assert "learning rate 0.1 in step" in error
        assert "0.05 in step" in error


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_mean_is_finite_where_the_sum_is_not(ranks, dtype):
    for rank in ranks:
        plain, packed, *others = rank["_large", dtype]
        assert [plain, *others] == [1.0] * 4
        assert packed > 0.5 or dtype is not torch.float64


def test_ranks_that_have_tried_unequally_often_begin_together(ranks):
    for rank, found in enumerate(ranks):
        missed = [f"rank {rank}, try {number}: rank {1 - rank} did not come" for number in range(3 if rank else 1)]
        assert found["_tries"] == [*missed, "0 0", "1 0", "0 1", "1 1"]


class Unhooked(torch.optim.Optimizer):
    """A wrapper with torch's dictionaries of hooks, which nothing calls."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        self.base, self.param_groups, self.state = base, base.param_groups, base.state
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}

    def step(self, closure: Any = None) -> Any:
        """A step of the optimizer in it."""
        return self.base.step(closure)


class Bare(Unhooked):
    """One without them, as accelerate's."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        self.optimizer = base


Bare.param_groups = property(lambda self: self.optimizer.param_groups)  # type: ignore[assignment]
INSIDE = "of whose steps torch calls no hooks, .*, allowed: the SGD in it, optimizer."
WRAPPERS: dict[str, tuple[Callable[[torch.optim.Optimizer], Any], str]] = {
    "unhooked": (Unhooked, f"found Unhooked, {INSIDE}base"),
    "bare": (Bare, f"found Bare, {INSIDE}optimizer"),
    "nested": (lambda base: Bare(Unhooked(base)), rf"found Bare, {INSIDE}optimizer\.base"),
    "post-local": (
        lambda base: PostLocalSGDOptimizer(base, PeriodicModelAverager(period=4, process_group=object())),
        f"found PostLocalSGDOptimizer, {INSIDE}optim, stepped by itself if",
    ),
}


def _tie(model: nn.ModuleDict) -> None:
    model["b"].weight.data = model["a"].weight.data


def _view(model: nn.ModuleDict) -> None:
    model["b"].weight = nn.Parameter(model["a"].weight.data[:, 1:])


def _buffer(model: nn.ModuleDict) -> None:
    model.register_buffer("shown", model["a"].weight.data.view(3))


def _frozen(model: nn.ModuleDict) -> None:
    _tie(model)
    model["b"].weight.requires_grad_(False)


def _inference(of_buffer: bool) -> Callable[[nn.ModuleDict], None]:
    def change(model: nn.ModuleDict) -> None:
        with torch.inference_mode():
            if of_buffer:
                model.register_buffer("made", torch.ones(1, 3))
            else:
                model["a"].weight = nn.Parameter(torch.ones(1, 3))

    return change


def _set(value: Callable[[], Tensor]) -> Callable[[nn.ModuleDict], None]:
    def change(model: nn.ModuleDict) -> None:
        model["a"].weight = nn.Parameter(value())

    return change


SHARE = "and attaching would part them"
MODELS: dict[str, tuple[Callable[[nn.ModuleDict], Any], str]] = {
    "tied by .data": (_tie, f"parameter a.weight and parameter b.weight share memory, {SHARE}"),
    "a view": (_view, f"parameter a.weight and parameter b.weight share memory, {SHARE}"),
    "a buffer": (_buffer, f"parameter a.weight and buffer shown share memory, {SHARE}"),
    "a frozen one": (_frozen, f"parameter a.weight and parameter b.weight share memory, {SHARE}"),
    "shared memory": (nn.Module.share_memory, "parameter a.weight is in shared memory, which attaching would leave"),
    "expanded": (_set(lambda: torch.ones(1, 1).expand(1, 3)), "parameter a.weight is expanded: its elements share"),
    "float16": (nn.Module.half, "parameter a.weight is trained in float16, in which sums over workers overflow"),
    "inference": (_inference(False), r"parameter a.weight was made in torch.inference_mode\(\)"),
    "inference buffer": (_inference(True), r"buffer made was made in torch.inference_mode\(\)"),
}


@pytest.mark.parametrize(("change", "message"), MODELS.values(), ids=MODELS)
def test_parameters_that_cannot_move_are_refused_by_name_and_nothing_changes(change, message):
    model = _two_layers()
    change(model)
    _is_refused(model, torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.1), message)


@pytest.mark.parametrize(("wrap", "message"), WRAPPERS.values(), ids=WRAPPERS)
def test_an_optimizer_whose_steps_are_not_seen_is_refused_with_what_to_attach_to(wrap, message):
    model = _two_layers()
    _is_refused(model, wrap(torch.optim.SGD(model.parameters(), lr=0.1)), message)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [(resync.StreamingDiLoCo(period=30, fragments=10), "fragments: found 10, allowed: at most the 8 parameters")],
)
def test_what_an_algorithm_refuses_changes_nothing(algorithm, message):
    model = _two_layers()
    _is_refused(model, torch.optim.SGD(model.parameters(), lr=0.1), message, algorithm)


def _is_refused(model: nn.Module, optimizer: Any, message: str, algorithm: SyncOptions = METHODS["LocalSGD"]) -> None:
    def places() -> list[int]:
        return [each.data_ptr() for each in [*model.parameters(), *model.buffers()]]

    before = places()
    with pytest.raises(ValueError, match=message):
        resync.attach(model, optimizer, algorithm)
    assert places() == before
    assert not getattr(optimizer, "_optimizer_step_pre_hooks", {})


@pytest.mark.parametrize("name", [each for each in METHODS if each != "ADPSGD"])
def test_parameters_that_move_without_a_step_are_an_error(name):
    for steps in (0, 1):
        model = _two_layers()
        optimizer, sync = _attached(name, model)
        for each in (optimizer,) * steps:
            (model["a"](torch.ones(3)) + model["b"](torch.ones(3))).sum().backward()
            each.step()
        with sync.consensus():
            pass
        (model["a"](torch.ones(3)) + model["b"](torch.ones(3))).sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        for call in (sync.consensus().__enter__, sync.finish, sync.state_dict):
            with pytest.raises(RuntimeError, match=rf"^rank 0, .*: a.weight has changed and sync.steps, {steps}, has"):
                call()
        sync.take_parameters()
        sync.finish()


def test_a_rate_that_rises_within_a_round_is_warned_of_once():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    resync.attach(model, optimizer, resync.QSR(alpha=0.2, h_base=4), total_steps=40, warmup_steps=0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for step in range(12):
            optimizer.param_groups[0]["lr"] = 0.2 if step % 4 == 2 else 0.1
            model(torch.ones(2)).sum().backward()
            optimizer.step()
    assert [str(each.message).split(", within")[0] for each in found] == [
        "the learning rate rises from 0.1 in step 1 to 0.2 in step 3"
    ]


STATES: dict[str, Callable[[Any], Any]] = {
    "no dictionary": lambda state: 3,
    "no identity": lambda state: state | {"identity": 3},
    "no buffer": lambda state: {key: value for key, value in state.items() if key != "buffer"},
    "a number": lambda state: state | {"transport": 1.0},
    "another shape": lambda state: state | {"anchor": torch.ones(1, 3)},
}


@pytest.mark.parametrize("change", STATES.values(), ids=STATES)
def test_a_malformed_state_is_refused(change):
    _, sync = _attached("DiLoCo", _two_layers())
    with pytest.raises(ValueError, match=r"rank 0, load_state_dict\(\): "):
        sync.load_state_dict(change(sync.state_dict()))
