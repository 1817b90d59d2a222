"""The same training with the peers, each in its own environment: what their documentation shows for a loop."""

import os

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
