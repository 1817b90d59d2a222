"""Workers of several processes in a plain PyTorch loop: DDP or FSDP2 inside, any algorithm between them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from processes import run_processes
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import resync
from resync.base.errors import UserError

STEPS, BATCH = 7, 8
METHODS: dict[str, Any] = {
    "AllReduce": resync.AllReduce(),
    "AllReduce, clipped": resync.AllReduce(),
    "SGP": resync.SGP(),
    "SGP with momentum": resync.SGP(average_state=["momentum_buffer"]),
    "OSGP": resync.OSGP(staleness=1),
    "DPSGD": resync.DPSGD(),
    "LocalSGD": resync.LocalSGD(period=3),
    "QSR": resync.QSR(alpha=0.2, h_base=2),
    "SlowMo": resync.SlowMo(period=3),
    "DiLoCo": resync.DiLoCo(period=3),
    "StreamingDiLoCo": resync.StreamingDiLoCo(period=6, fragments=3, delay=1, mixing=0.5),
    "GPA": resync.GPA(h=3),
}


class Double(nn.Linear):
    """A layer in float64 between others in float32."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, dtype=torch.float64)

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.double()).float()


def _model(first: type[nn.Linear] = nn.Linear) -> nn.Module:
    """With an odd number of rows in each layer, so that shards differ in size."""
    torch.manual_seed(1)
    return nn.Sequential(first(6, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3))


def _batch(replica: int, step: int, part: int, parts: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * replica + step)
    inputs, targets = torch.randn(BATCH, 6, generator=generator), torch.randn(BATCH, 3, generator=generator)
    return inputs.chunk(parts)[part], targets.chunk(parts)[part]


def _sharded(model: nn.Module, mesh: Any) -> nn.Module:
    """The last layers belong to the whole model, which does not give up what it has gathered after a forward pass."""
    fully_shard(model[0], mesh=mesh["shard"])
    return fully_shard(model, mesh=mesh["shard"])


def _full(parameter: Any) -> Tensor:
    whole: Tensor = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
    return whole.detach().clone()


class Trained:
    """One training, which ends with the replica's own parameters and with the loss of the average on the way."""

    def __init__(self, name: str, mesh: Any = None, inside: str = "nothing") -> None:
        self.inside = inside
        self.replica, self.part = mesh.get_coordinate() if mesh else (dist.get_rank(), 0)
        self.parts = mesh.size(1) if mesh else 1
        name, _, dtypes = name.partition(", two ")
        self.model = _model(Double if dtypes else nn.Linear)
        if inside == "fsdp":
            _sharded(self.model, mesh)
        self.forward: Callable[[Tensor], Tensor] = self.model
        if inside == "ddp":
            self.forward = DistributedDataParallel(self.model, process_group=mesh["shard"].get_group())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        of_lr = {"total_steps": STEPS, "warmup_steps": 0} if name == "QSR" else {}
        clip = {"clip_norm": 0.1} if "clipped" in name else {}
        group = {"group": mesh["replicate"]} if mesh else {}
        self.sync = resync.attach(self.model, self.optimizer, METHODS[name], seed=3, **of_lr, **clip, **group)

    def steps(self, first: int, last: int) -> None:
        for step in range(first, last):
            inputs, targets = _batch(self.replica, step, self.part, self.parts)
            nn.functional.mse_loss(self.forward(inputs), targets).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def loss_of_average(self) -> float:
        inputs, targets = _batch(99, 0, 0, 1)
        with self.sync.consensus() as model, torch.no_grad():
            return nn.functional.mse_loss(model(inputs), targets).item()

    def parameters(self) -> np.ndarray:
        return torch.cat([_full(parameter).flatten() for parameter in self.model.parameters()]).numpy()


def _ends(name: str, mesh: Any = None, inside: str = "nothing") -> tuple[np.ndarray, float, np.ndarray]:
    trained = Trained(name, mesh, inside)
    trained.steps(0, 4)
    loss = trained.loss_of_average()
    trained.steps(4, STEPS)
    own = trained.parameters()
    trained.sync.finish()
    return own, loss, trained.parameters()


def _all_methods(rank: int, world_size: int, shape: tuple[int, int] | None, inside: str) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")) if shape else None
    return {name: _ends(name, mesh, inside) for name in METHODS}


@pytest.fixture(scope="module")
def whole() -> dict[int, list[dict[str, Any]]]:
    """What replicas of one process end with, by their number."""
    return {number: run_processes(number, _all_methods, None, "nothing") for number in (2, 4)}


@pytest.mark.parametrize(("shape", "inside"), [((2, 2), "fsdp"), ((4, 1), "fsdp"), ((2, 2), "ddp")])
def test_replicas_of_several_processes_end_like_whole_ones(shape: tuple[int, int], inside: str, whole):
    found = run_processes(4, _all_methods, shape, inside)
    for rank, methods in enumerate(found):
        expected = whole[shape[0]][rank // shape[1]]
        for name, (own, loss, final) in methods.items():
            theirs, their_loss, their_final = expected[name]
            np.testing.assert_allclose(own, theirs, atol=1e-6, rtol=0, err_msg=f"{name}: rank {rank}'s parameters")
            assert loss == pytest.approx(their_loss, abs=1e-6), name
            np.testing.assert_allclose(final, their_final, atol=1e-6, rtol=0, err_msg=f"{name}: the final average")


def _local_sgd(replicas: int) -> np.ndarray:
    """Local SGD with momentum and H = 3, written out: the final average."""
    points = [[parameter.detach().clone() for parameter in _model().parameters()] for _ in range(replicas)]
    buffers = [[torch.zeros_like(each) for each in point] for point in points]
    model = _model()
    for step in range(STEPS):
        for replica, (point, buffer) in enumerate(zip(points, buffers, strict=True)):
            inputs, targets = _batch(replica, step, 0, 1)
            named = dict(zip(dict(model.named_parameters()), [each.requires_grad_() for each in point], strict=True))
            loss = nn.functional.mse_loss(torch.func.functional_call(model, named, (inputs,)), targets)
            for own, momentum, gradient in zip(point, buffer, torch.autograd.grad(loss, point), strict=True):
                momentum.mul_(0.9).add_(gradient)
                own.requires_grad_(False).sub_(0.1 * momentum)
        if (step + 1) % 3 == 0 or step + 1 == STEPS:
            means = [torch.stack(each).mean(0) for each in zip(*points, strict=True)]
            points = [[mean.clone() for mean in means] for _ in points]
    return torch.cat([mean.flatten() for mean in points[0]]).numpy()


def test_local_sgd_of_sharded_replicas_is_its_recursion():
    for _, _, final in (found["LocalSGD"] for found in run_processes(4, _all_methods, (2, 2), "fsdp")):
        np.testing.assert_allclose(final, _local_sgd(2), atol=1e-6, rtol=0)


def _of_mesh(name: str, shape: tuple[int, int], folder: Path) -> tuple[Trained, dict[str, Any]]:
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
    trained = Trained(name, mesh, "fsdp")
    return trained, {"checkpoint_id": folder / f"{trained.replica}", "process_group": mesh["shard"].get_group()}


def _state(of: Trained) -> dict[str, Any]:
    model, optimizer = get_state_dict(of.model, of.optimizer)
    return {"model": model, "optimizer": optimizer, "sync": of.sync.state_dict()}


def _saved(rank: int, world_size: int, folder: Path, name: str, shape: tuple[int, int]) -> np.ndarray:
    trained, where = _of_mesh(name, shape, folder)
    trained.steps(0, 4)
    dcp.save(_state(trained), **where)
    trained.steps(4, STEPS)
    trained.sync.finish()
    return trained.parameters()


def _continued(rank: int, world_size: int, folder: Path, name: str, shape: tuple[int, int]) -> np.ndarray:
    trained, where = _of_mesh(name, shape, folder)
    trained.steps(0, 1)  # so that the optimizer has a state to load into
    found = _state(trained)
    dcp.load(found, **where)
    model, optimizer = found["model"], found["optimizer"]
    set_state_dict(trained.model, trained.optimizer, model_state_dict=model, optim_state_dict=optimizer)
    trained.sync.load_state_dict(found["sync"])
    trained.steps(4, STEPS)
    trained.sync.finish()
    return trained.parameters()


@pytest.mark.parametrize(
    "name", ["SGP with momentum", "OSGP", "SlowMo", "DiLoCo", "StreamingDiLoCo", "StreamingDiLoCo, two dtypes"]
)
def test_replicas_continue_from_a_distributed_checkpoint_with_other_shards(name: str, tmp_path: Path):
    trained = run_processes(4, _saved, tmp_path, name, (2, 2))
    for found, expected in zip(run_processes(4, _continued, tmp_path, name, (2, 2)), trained, strict=True):
        np.testing.assert_array_equal(found, expected)
    for found in run_processes(2, _continued, tmp_path, name, (2, 1)):
        np.testing.assert_allclose(found, trained[0], atol=1e-6, rtol=0)


def _refusals(rank: int, world_size: int) -> list[str]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    sharded, plain = _sharded(_model(), mesh), _model()
    both = fully_shard(_model(), mesh=mesh)
    some = _model()
    fully_shard(some[0], mesh=mesh["shard"])
    spread = DistributedDataParallel(_model())
    said = []
    for model, algorithm, group in (
        (sharded, resync.LocalSGD(period=2), None),
        (both, resync.LocalSGD(period=2), mesh["replicate"]),
        (some, resync.LocalSGD(period=2), mesh["replicate"]),
        (plain, resync.LocalSGD(period=2), mesh),
        (plain, resync.LocalSGD(period=2), "replicate"),
        (plain, resync.ADPSGD(asynchronous=True), mesh["replicate"]),
    ):
        with pytest.raises((UserError, TypeError)) as error:
            resync.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), algorithm, group=group)
        said.append(str(error.value))
    optimizer = torch.optim.SGD(spread.module.parameters(), lr=0.1)
    resync.attach(spread.module, optimizer, resync.LocalSGD(period=2), group=mesh["replicate"])
    with pytest.raises(RuntimeError) as late:
        optimizer.step()
    return [*said, str(late.value)]


def test_what_cannot_be_a_worker_is_one_line():
    expected = [
        "sharded over the ranks [0, 1], of which [0, 1] are workers",
        "sharded over the ranks [[0, 1], [2, 3]]",
        "is whole and others are sharded",
        "found a mesh with the dimensions ('replicate', 'shard')",
        "group: found 'replicate', allowed: a ProcessGroup",
        "would make different averages within a worker",
        "wrapped in DistributedDataParallel",
    ]
    said = run_processes(4, _refusals)[0]
    assert len(said) == len(expected)
    for found, part in zip(said, expected, strict=True):
        assert part in found
        assert "\n" not in found
