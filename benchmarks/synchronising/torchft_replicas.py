"""Two workers of two processes, FSDP2 inside and torchft between them, as its documentation and its tests do it."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

os.environ.setdefault("RUST_LOG", "error")  # or it logs every step
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo, LocalSGD
from torchft.manager import Manager
from torchft.optim import OptimizerWrapper
from torchft.process_group import ProcessGroupGloo

from benchmarks.synchronising.loop import H, Setting, Step, loss_of
from benchmarks.synchronising.sharded import mesh_of, sharded, step_of

_HOST = "127.0.0.1"


def _manager(setting: Setting, mesh: DeviceMesh, *, asynchronous: bool) -> Manager:
    """A lighthouse in the first process, a store in the first one of each worker, and a manager in all."""
    worker, part = mesh.get_coordinate() or (0, 0)
    lighthouse = (
        LighthouseServer(bind=f"{_HOST}:0", min_replicas=2, join_timeout_ms=1000) if setting.rank == 0 else None
    )
    store = dist.TCPStore(_HOST, 0, is_master=True, wait_for_workers=False) if part == 0 else None
    known: list[tuple[str | None, int | None]] = [("", 0)] * setting.size
    dist.all_gather_object(known, (lighthouse and lighthouse.address(), store and store.port))
    limit = timedelta(seconds=60)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=limit),
        load_state_dict=None,
        state_dict=None,
        min_replica_size=2,
        use_async_quorum=asynchronous,
        timeout=limit,
        rank=part,
        world_size=mesh.size(1),
        store_addr=_HOST,
        store_port=known[worker * mesh.size(1)][1],
        lighthouse_addr=known[0][0],
        replica_id=f"worker{worker}",
        hostname=_HOST,
        init_sync=False,
    )
    setting.keep.extend([lighthouse, store, manager])
    return manager


def all_reduce(setting: Setting) -> Step:
    """The gradients that FSDP2 has reduced inside a worker are averaged by the manager."""
    mesh = mesh_of(setting)
    inner = sharded(setting, mesh["shard"])
    manager = _manager(setting, mesh, asynchronous=True)
    optimizer = OptimizerWrapper(manager, inner)
    for module in setting.model.modules():
        if hasattr(module, "set_all_reduce_hook"):
            module.set_all_reduce_hook(lambda gradient: manager.allreduce(gradient).wait())

    def step(batch: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        loss_of(setting.model, batch, labels).backward()
        optimizer.step()

    return step


def local_sgd(setting: Setting) -> Step:
    """torchft.local_sgd.LocalSGD."""
    mesh = mesh_of(setting)
    optimizer = sharded(setting, mesh["shard"])
    manager = _manager(setting, mesh, asynchronous=False)
    rounds = LocalSGD(manager, setting.model, optimizer, sync_every=H)
    setting.keep.append(rounds.__enter__())
    return step_of(setting, optimizer)


def diloco(setting: Setting) -> Step:
    """torchft.local_sgd.DiLoCo, whose only fragment is the model."""
    mesh = mesh_of(setting)
    optimizer = sharded(setting, mesh["shard"])
    manager = _manager(setting, mesh, asynchronous=False)
    outer = torch.optim.SGD(setting.model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    rounds = DiLoCo(manager, [setting.model], optimizer, outer, sync_every=H, pin_memory=False)
    setting.keep.append(rounds.__enter__())
    return step_of(setting, optimizer)
