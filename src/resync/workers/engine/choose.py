"""The choice of a run's engine from its settings alone, so that a run continues with the same engine.

Where `stacked` is chosen, `benchmarks/simulated.py` has measured it to be faster than `serial`: see
`resync.workers.engine.stacked.LIMITS`.
"""

from typing import Any

from torch.optim import Optimizer

from resync.workers.engine.engine import Engine, LossFunction
from resync.workers.engine.settings import EngineSettings
from resync.workers.engine.stacked import Stacked, Stacking
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers


def choose_engine(name: str, may_average: bool, num_workers: int, world_size: int, stacking_pays: bool = False) -> str:
    """The engine of this name; `auto` is `ddp` where it can overlap the averaging of gradients.

    Elsewhere it is `stacked` if that pays and processes have several workers, else `serial`. An engine averages
    gradients over all workers if it may, and else over the processes of a worker.
    """
    if name != "auto":
        return name
    averaged_over = world_size if may_average else world_size // num_workers
    if averaged_over > 1 and world_size >= num_workers:
        return "ddp"
    return "stacked" if stacking_pays and world_size < num_workers else "serial"


def build(
    settings: EngineSettings,
    may_average: bool,
    transport: Transport,
    workers: Workers,
    optimizer: Optimizer,
    loss: LossFunction,
    stacking: Stacking | None = None,
    stacking_pays: bool = False,
    **gradient: Any,
) -> Engine:
    """The engine of a run; `gradient` are the keyword arguments of `Engine`.

    `may_average` says whether the algorithm lets the engine average gradients; `stacking` is None for a model that the
    engine `stacked` cannot compute. Raises ValueError if the engine does not support the model or this number of
    workers per process.
    """
    name = choose_engine(settings.name, may_average, transport.num_workers, transport.world_size, stacking_pays)
    parts, gradient = (workers, optimizer, loss), gradient | {"members": transport.members}
    if name == "serial":
        return Engine(*parts, **gradient)
    if name == "stacked":
        return Stacked(*parts, stacking=stacking, **gradient)
    if name == "ddp":
        from resync.workers.engine.ddp import Ddp

        return Ddp(*parts, transport=transport, averages_gradients=may_average, **gradient)
    from resync.workers.engine.deepspeed import DeepSpeed

    return DeepSpeed(*parts, transport=transport, zero_stage=settings.zero_stage, **gradient)
