"""Two workers of two processes: FSDP2 inside, and between them ours, torch's, or an average written out."""

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

import resync
from benchmarks.synchronising.loop import H, Setting, Step, loss_of
from resync.run.parts import SyncOptions


def _mesh(setting: Setting) -> DeviceMesh:
    return init_device_mesh("cpu", (2, setting.size // 2), mesh_dim_names=("replicate", "shard"))


def _sharded(setting: Setting, mesh: DeviceMesh) -> torch.optim.Optimizer:
    """The optimizer of the model, every layer of which is sharded by itself."""
    for layer in setting.model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(setting.model, mesh=mesh)
    return torch.optim.SGD(setting.model.parameters(), lr=0.001, momentum=0.9)


def _step(setting: Setting, optimizer: torch.optim.Optimizer, then: Any = lambda: None) -> Step:
    def step(batch: Tensor, labels: Tensor) -> None:
        loss_of(setting.model, batch, labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        then()

    return step


def alone(setting: Setting) -> Step:
    """FSDP2 in each worker, which hears nothing of the other."""
    return _step(setting, _sharded(setting, _mesh(setting)["shard"]))


def hybrid(setting: Setting) -> Step:
    """FSDP2 over both dimensions (HSDP): torch averages the gradients of the workers in every step."""
    return _step(setting, _sharded(setting, _mesh(setting)))


def local_sgd(setting: Setting) -> Step:
    """FSDP2 in each worker, and every H steps an average of the shards over the workers, written out."""
    mesh, steps = _mesh(setting), 0
    optimizer, group = _sharded(setting, mesh["shard"]), mesh["replicate"].get_group()

    @torch.no_grad()
    def average() -> None:
        nonlocal steps
        steps += 1
        for parameter in setting.model.parameters() if steps % H == 0 else ():
            shard = parameter.to_local()
            dist.all_reduce(shard, group=group)
            shard.div_(2)

    return _step(setting, optimizer, average)


def _ours(algorithm: SyncOptions, setting: Setting) -> Step:
    mesh = _mesh(setting)
    optimizer = _sharded(setting, mesh["shard"])
    resync.attach(setting.model, optimizer, algorithm, group=mesh["replicate"])
    return _step(setting, optimizer)


ours_all_reduce = partial(_ours, resync.AllReduce())
ours_local_sgd = partial(_ours, resync.LocalSGD(period=H))
ours_diloco = partial(_ours, resync.DiLoCo(period=H))
ours_sgp = partial(_ours, resync.SGP())
