"""The choice of a run's engine from its settings alone, so that a run continues with the same engine.

Where `stacked` is chosen, `benchmarks/simulated.py` has measured it to be faster than `serial`: see
`resync.workers.engine.stacked.LIMITS`.
"""

from resync.workers.engine.engine import Engine, EngineParts
from resync.workers.engine.settings import EngineSettings
from resync.workers.engine.stacked import Stacked, stacking_pays


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


def engine_of(settings: EngineSettings, parts: EngineParts) -> Engine:
    """The engine of these parts.

    Raises ValueError if it does not support the model or this number of workers per process.
    """
    transport = parts.transport
    pays = parts.stacking is not None and stacking_pays(parts.stacking, parts.workers.models[0])
    engine: Engine
    match choose_engine(settings.name, parts.may_average, transport.num_workers, transport.world_size, pays):
        case "stacked":
            engine = Stacked(parts)
        case "ddp":
            from resync.workers.engine.ddp import Ddp

            engine = Ddp(parts)
        case "deepspeed":
            from resync.workers.engine.deepspeed import DeepSpeed

            engine = DeepSpeed(parts, settings.zero_stage)
        case _:
            engine = Engine(parts)
    if parts.compile:
        engine.compile(parts.compile)
    return engine
