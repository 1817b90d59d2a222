"""The same training with the peers, each in its own environment: what their documentation shows for a loop."""

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.synchronising.loop import LR, MOMENTUM, H, Setting, Step, loss_of


def accelerate_local_sgd(setting: Setting) -> Step:
    """accelerate.local_sgd.LocalSGD."""
    ranks = {"RANK": setting.rank, "WORLD_SIZE": setting.size, "LOCAL_RANK": setting.rank}
    os.environ |= {name: str(value) for name, value in ranks.items()}
    os.environ |= {"LOCAL_WORLD_SIZE": str(setting.size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    from accelerate import Accelerator
    from accelerate.local_sgd import LocalSGD

    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(setting.model, setting.optimizer())
    rounds = LocalSGD(accelerator, model, local_sgd_steps=H)
    rounds.__enter__()

    def step(batch: Tensor, labels: Tensor) -> None:
        accelerator.backward(loss_of(model, batch, labels))
        optimizer.step()
        optimizer.zero_grad()
        rounds.step()

    return step


def decent_dp(setting: Setting) -> Step:
    """decent_dp.ddp on its graph with one peer, which steps the optimizer in its hooks."""
    from decent_dp.ddp import DecentralizedDataParallel

    def optimizer(parameters: list[tuple[str, Tensor]]) -> torch.optim.Optimizer:
        return torch.optim.SGD([each for _, each in parameters], lr=LR, momentum=MOMENTUM, fused=True)

    model = DecentralizedDataParallel(setting.model, optimizer, topology="one-peer-exp", _local_world_size=1)

    def step(batch: Tensor, labels: Tensor) -> None:
        loss_of(model, batch, labels).backward()

    return step


def fairscale_slowmo(setting: Setting) -> Step:
    """fairscale's SlowMoDistributedDataParallel, with Local SGD as its base algorithm."""
    from fairscale.experimental.nn.data_parallel import SlowMoBaseAlgorithm, SlowMoDistributedDataParallel

    if not torch.cuda.is_available():
        torch.cuda.synchronize = lambda *_: None  # it waits for a GPU on the CPU, too
    model = SlowMoDistributedDataParallel(
        setting.model, nprocs_per_node=1, broadcast_buffers=False, slowmo_base_algorithm=SlowMoBaseAlgorithm.LOCALSGD,
        global_group=dist.new_group(), master_group=dist.new_group(), local_node_group=dist.group.WORLD,
        slowmo_momentum=0.5, slowmo_frequency=H, localsgd_frequency=H, slowmo_memory_efficient=False,
    )  # fmt: skip
    optimizer = setting.optimizer()

    def step(batch: Tensor, labels: Tensor) -> None:
        loss_of(model, batch, labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        model.perform_slowmo(optimizer)

    return step


def torchft_ddp(setting: Setting) -> Step:
    """torchft's DistributedDataParallel, each process being a replica group."""
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
    from torchft.coordination import LighthouseServer

    address = Path(setting.folder) / "lighthouse"
    if setting.rank == 0:
        setting.keep.append(LighthouseServer(bind="127.0.0.1:0", min_replicas=setting.size, join_timeout_ms=60000))
        address.write_text(setting.keep[0].address())
    dist.barrier()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=60)), load_state_dict=lambda state: None, state_dict=dict,
        min_replica_size=setting.size, rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port,
        lighthouse_addr=address.read_text(), replica_id=f"replica{setting.rank}", hostname="127.0.0.1",
        init_sync=False, use_async_quorum=False,
    )  # fmt: skip
    setting.keep.extend([store, manager])
    model = DistributedDataParallel(manager, setting.model, broadcast_buffers=False)
    optimizer = Optimizer(manager, setting.optimizer())

    def step(batch: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        loss_of(model, batch, labels).backward()
        optimizer.step()

    return step
