"""The choice of a run's engine from its settings alone, so that a run continues with the same engine."""

from typing import Any

from torch.optim import Optimizer

from resync.config.training import EngineSettings
from resync.engine.engine import Engine, LossFunction
from resync.engine.transport import Transport
from resync.engine.workers import Workers


def chosen(name: str, averages_gradients: bool, num_workers: int, world_size: int) -> str:
    """The engine of this name; `auto` is `ddp` where it can overlap the averaging of gradients, else `serial`.

    Gradients are averaged over all workers if the algorithm does, and else over the processes of a worker.
    """
    if name != "auto":
        return name
    averaged_over = world_size if averages_gradients else world_size // num_workers
    return "ddp" if averaged_over > 1 and world_size >= num_workers else "serial"


def build(
    settings: EngineSettings,
    averages_gradients: bool,
    transport: Transport,
    workers: Workers,
    optimizer: Optimizer,
    loss: LossFunction,
    **gradient: Any,
) -> Engine:
    """The engine of a run; `gradient` are the keyword arguments of `Engine`.

    `averages_gradients` says whether the algorithm does. Raises ValueError if the engine does not support this number
    of workers per process.
    """
    name = chosen(settings.name, averages_gradients, transport.num_workers, transport.world_size)
    if name == "serial":
        return Engine(workers, optimizer, loss, members=transport.members, **gradient)
    if name == "ddp":
        from resync.engine.ddp import Ddp

        return Ddp(
            workers, optimizer, loss, transport=transport, averages_gradients=averages_gradients,
            members=transport.members, **gradient,
        )  # fmt: skip
    from resync.engine.deepspeed import DeepSpeed

    return DeepSpeed(
        workers, optimizer, loss, transport=transport, zero_stage=settings.zero_stage,
        members=transport.members, **gradient,
    )  # fmt: skip
