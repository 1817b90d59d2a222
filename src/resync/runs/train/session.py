"""The parts that train one run on one process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch.optim import Optimizer

from resync.runs.run import Run
from resync.runs.train.checkpoint import Checkpoints
from resync.runs.train.log import RunLog
from resync.runs.train.losses import Losses, ValidationWatch
from resync.runs.train.objective import Objective
from resync.runs.train.provenance import TrainingJob
from resync.runs.train.swa import IterateAverage
from resync.tasks.data import Dataset
from resync.tasks.data.sampling import Sampler
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.engine import Engine
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers
from resync.workers.formulas.schedules import Schedule
from resync.workers.sync.algorithm import Algorithm

BatchTransform = Callable[[Any, Any, int, int], tuple[Any, Any]]
"""(inputs, targets, step, first worker) -> (inputs, targets) of the local workers, all of them [k, b, ...]."""


@dataclass
class Session:
    """The parts of a run: `build` makes them, the loop uses them, and checkpoints save their state."""

    run: Run
    clocks: Clocks
    transport: Transport
    data: Dataset
    sampler: Sampler
    transforms: tuple[BatchTransform, ...]
    workers: Workers
    optimizer: Optimizer
    engine: Engine
    sync: Algorithm
    schedule: Schedule
    watch: ValidationWatch
    objective: Objective
    losses: Losses
    evaluation_steps: frozenset[int]
    checkpoints: Checkpoints
    log: RunLog | None
    resumed_from: list[int] = field(default_factory=list)
    earlier_jobs: list[dict[str, Any]] = field(default_factory=list)
    job: TrainingJob = field(default_factory=TrainingJob)
    swa: IterateAverage | None = None

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """The records of the jobs that have trained the run, of which the last one is this."""
        return [*self.earlier_jobs, self.job.record()]

    def lr(self, step: int) -> float:
        return self.schedule(step) * self.watch.lr_factor

    def has_ended(self) -> bool:
        return self.sync.steps >= self.run.total_steps or self.watch.stop

    @property
    def volume_percent(self) -> float:
        """Bytes that a worker has sent, as a percentage of one parameter vector per step; NaN before the first step."""
        vectors = self.transport.bytes_sent / self.workers.rows[0].nbytes
        return 100 * vectors / self.sync.steps if self.sync.steps else float("nan")

    @property
    def parts(self) -> dict[str, Any]:
        """The parts whose state a checkpoint saves, in the order in which it is restored.

        Each has `state_dict` and `load_state_dict`. Under "workers" a state has tensors [k, ...] with one row per local
        worker; everything else is the same on every process, except for the log, which only rank 0 has.
        """
        parts: dict[str, Any] = {
            "workers": self.workers,
            "engine": self.engine,
            "sync": self.sync,
            "losses": self.losses,
            "clocks": self.clocks,
            "watch": self.watch,
            "transport": self.transport,
        }
        further = {"swa": self.swa, "log": self.log}
        return parts | {name: part for name, part in further.items() if part}
