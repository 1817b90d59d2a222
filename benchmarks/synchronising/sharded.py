"""Two workers of two processes with torch alone: FSDP2 inside, and between them nothing, HSDP, or an average."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from benchmarks.synchronising.loop import H, Setting, Step, loss_of


def mesh_of(setting: Setting) -> DeviceMesh:
    """2 x 2 processes."""
    return init_device_mesh("cpu", (2, setting.size // 2), mesh_dim_names=("replicate", "shard"))


def sharded(setting: Setting, mesh: DeviceMesh) -> torch.optim.Optimizer:
    """The optimizer of the model, every layer of which is sharded by itself."""
    for layer in setting.model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(setting.model, mesh=mesh)
    return torch.optim.SGD(setting.model.parameters(), lr=0.001, momentum=0.9)


def step_of(setting: Setting, optimizer: torch.optim.Optimizer, then: Any = lambda: None) -> Step:
    """A step, and what is done after it."""

    def step(batch: Tensor, labels: Tensor) -> None:
        loss_of(setting.model, batch, labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        then()

    return step


def alone(setting: Setting) -> Step:
    """FSDP2 in each worker, which hears nothing of the other."""
    return step_of(setting, sharded(setting, mesh_of(setting)["shard"]))


def hybrid(setting: Setting) -> Step:
    """FSDP2 over both dimensions (HSDP): torch averages the gradients of the workers in every step."""
    return step_of(setting, sharded(setting, mesh_of(setting)))


def local_sgd(setting: Setting) -> Step:
    """FSDP2 in each worker, and every H steps an average of the shards over the workers, written out."""
    mesh, steps = mesh_of(setting), 0
    optimizer, group = sharded(setting, mesh["shard"]), mesh["replicate"].get_group()

    @torch.no_grad()
    def average() -> None:
        nonlocal steps
        steps += 1
        for parameter in setting.model.parameters() if steps % H == 0 else ():
            shard = parameter.to_local()
            dist.all_reduce(shard, group=group)
            shard.div_(2)

    return step_of(setting, optimizer, average)
