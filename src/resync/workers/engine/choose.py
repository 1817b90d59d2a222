"""The choice of a run's engine from its settings alone, so that a run continues with the same engine.

Where `stacked` is chosen, `benchmarks/simulated.py` has measured it to be faster than `serial`: see
`resync.workers.engine.stacked.LIMITS`.
"""

from resync.workers.engine.engine import Engine, EngineParts
from resync.workers.engine.settings import EngineSettings
from resync.workers.engine.stacked import Stacked, Stacking
from resync.workers.engine.transport import Transport


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
    parts: EngineParts,
    transport: Transport,
    may_average: bool,
    stacking: Stacking | None = None,
    stacking_pays: bool = False,
) -> Engine:
    """The engine of a run, which averages gradients if it `may_average`.

    `stacking` is None for a model that the engine `stacked` cannot compute. Raises ValueError if the engine does not
    support the model or this number of workers per process.
    """
    name = choose_engine(settings.name, may_average, transport.num_workers, transport.world_size, stacking_pays)
    if name == "serial":
        return Engine(parts)
    if name == "stacked":
        return Stacked(parts, stacking)
    if name == "ddp":
        from resync.workers.engine.ddp import Ddp

        return Ddp(parts, transport, may_average)
    from resync.workers.engine.deepspeed import DeepSpeed

    return DeepSpeed(parts, transport, settings.zero_stage)
