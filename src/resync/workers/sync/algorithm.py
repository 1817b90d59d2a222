"""The base classes of synchronisation algorithms: hooks around one optimizer step, and rounds of local steps."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from resync.base.errors import UserError
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers
from resync.workers.formulas.clock import VirtualClock
from resync.workers.formulas.periods import Period, round_length


@dataclass(frozen=True)
class Training:
    """The parts of a training that an algorithm works on.

    Attributes:
        workers: the workers of this process.
        transport: communication with the other workers.
        optimizer: the optimizer of the workers' parameters.
        total_steps: steps of the whole training, if known.
        warmup_steps: steps of the learning rate's warm-up.
        seed: seed of all random numbers of an algorithm.
        averaged_by_engine: whether gradients are already averaged over all workers when `after_backward` is called.
        clock: the simulated times of steps, if the run has any.
        choices: gives a new generator, with which a worker chooses its data stream; None: from the seed's named stream.
        keep: copies a tensor that only ends of rounds need to where it is stored (see resync.workers.sync.outer).
    """

    workers: Workers
    transport: Transport
    optimizer: Optimizer
    total_steps: float = inf
    warmup_steps: int = 0
    seed: int = 0
    averaged_by_engine: bool = False
    clock: VirtualClock | None = None
    choices: Callable[[], Any] | None = None
    keep: Callable[[Tensor], Tensor] = torch.clone


class Due(NamedTuple):
    """The gradient that a worker is to compute: on batch `number` of the data stream `stream`."""

    worker: int
    stream: int
    number: int


class Algorithm:
    """Exchanges rows between the workers around an optimizer step; the base class exchanges nothing.

    Between two steps `rows` are the point at which every worker takes its next gradient. Something else may stand there
    only from `after_backward` to `after_step`, as the point that the optimizer is to step.

    Attributes: `steps` (completed steps), `rounds` (completed rounds), `h` (local steps of the current round).

    In addition to the rows, a class declares the attributes that it needs to continue exactly: `shared` attributes are
    the same on every process, `per_worker` ones are tensors [k, ...] with one row per local worker, and `parts` have a
    `state_dict` like its own. Those of its base classes are added.
    """

    shared: ClassVar[tuple[str, ...]] = ("steps", "rounds", "h")
    per_worker: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[tuple[str, ...]] = ()
    asynchronous: ClassVar[bool] = False
    """Whether workers take their steps at their own speed, and all meet in evaluations and checkpoints only."""
    changes_gradients: bool = False
    """Whether `after_backward` changes `workers.grads` other than by averaging them, as `needs` would say."""

    def __init__(self, training: Training) -> None:
        self.workers = training.workers
        self.transport = training.transport
        self.optimizer = training.optimizer
        self.total_steps = training.total_steps
        self.warmup_steps = training.warmup_steps
        self.seed = training.seed
        self.averaged_by_engine = training.averaged_by_engine
        self.steps = 0
        self.rounds = 0
        self.h = 1

    @property
    def one_gradient(self) -> bool:
        """Whether a step can have one gradient only, because `after_backward` changes it or where it was computed."""
        return type(self).after_backward is not Algorithm.after_backward

    @property
    def rows(self) -> Tensor:
        """The parameters of the local workers, [k, P]."""
        return self.workers.rows.data

    def due(self) -> Sequence[Due] | None:
        """The gradients of the next step, of some workers; None: of all, each on the next batch of its own stream.

        `steps` are then those of all workers divided by their number, rounded down.
        """
        return None

    @property
    def next_steps(self) -> int:
        """What `steps` will be after the next step."""
        return self.steps + 1

    @property
    def lr_step(self) -> int:
        """The step of the schedule whose learning rate the next gradient is used with."""
        return self.steps

    @property
    def virtual_seconds(self) -> float | None:
        """The simulated time, if it is known."""
        return None

    def send_ahead(self) -> None:
        """Called before a gradient is computed: start the messages that travel meanwhile."""

    def after_backward(self) -> None:
        """Called between the gradient and the optimizer step."""

    def after_step(self, lr: float) -> bool:
        """Called after the optimizer step, which used `lr`; returns whether this step ended a round."""
        self.steps += 1
        self.rounds += 1
        return True

    def average_gradients(self, all_reduce: str = "default") -> None:
        """Average the gradients over all workers; where the engine has done so already, only count it."""
        if self.averaged_by_engine:
            self.transport.count_average(self.workers.grads)
        else:
            self.transport.mean_(self.workers.grads_to_average, all_reduce)

    def receive(self) -> None:
        """Receive the messages in flight, between two steps. Collective."""

    def synchronise(self) -> None:
        """Permanently give every worker the consensus; called between two steps."""
        self.to_consensus(self.rows)

    def close(self) -> None:
        """End any background work; collective, called after the last step."""

    @contextmanager
    def consensus(self) -> Iterator[nn.Module]:
        """The model with the average of all workers' parameters, for evaluation; restores the workers' own afterwards.

        To be used between two steps. The average is not counted as communication.
        """
        with self._restored() as rows:
            with self.transport.uncounted(), torch.no_grad():
                self.to_consensus(rows)
            yield self.workers.models[0]

    @contextmanager
    def own_models(self) -> Iterator[list[nn.Module]]:
        """The k models of the local workers with their own parameters, for evaluation; restores the rows afterwards."""
        with self._restored() as rows:
            rows.copy_(self.own_rows())
            yield self.workers.models

    @contextmanager
    def _restored(self) -> Iterator[Tensor]:
        """The rows, which the block may change; it changes them for itself only."""
        rows = self.rows
        saved = rows.clone()
        try:
            yield rows
        finally:
            rows.copy_(saved)

    def own_rows(self) -> Tensor:
        """The parameters with which each local worker would be used by itself, [k, P], between two steps.

        They may be the rows themselves, and must not be changed.
        """
        return self.rows

    @torch.no_grad()
    def squared_distances(self) -> Tensor:
        """The squared L2 distance of each local worker's own parameters from the average of all, float64 [k].

        It is 0 where it is no more than the rounding of a sum over the workers, which equal workers have, too.
        """
        mean = self.rows.clone()
        with self.transport.uncounted():
            self.to_consensus(mean)
        distances, sizes = (
            torch.linalg.vector_norm(of, dim=1, dtype=torch.float64) for of in (self.own_rows() - mean, mean)
        )
        rounding = torch.finfo(mean.dtype).eps * sqrt(self.transport.num_workers) * sizes
        return distances.where(distances > rounding, 0.0).square()

    def to_consensus(self, rows: Tensor) -> None:
        """Overwrite `rows` with the average over all workers, and change nothing else."""
        self.transport.mean_(rows)

    def state_dict(self) -> dict[str, Any]:
        """Copies of the declared attributes: `shared` and `parts`, and under "workers" those that have a row each."""
        state = {name: _copy(getattr(self, name)) for name in self._declared("shared")}
        workers = {name: getattr(self, name).clone() for name in self._declared("per_worker")}
        for name in self._declared("parts"):
            state[name] = getattr(self, name).state_dict()
            workers |= state[name].pop("workers", {})
        return state | {"workers": workers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in self._declared("shared"):
            self._restore(name, state[name])
        for name in self._declared("per_worker"):
            self._restore(name, state["workers"][name])
        for name in self._declared("parts"):
            getattr(self, name).load_state_dict(state[name] | {"workers": state["workers"]})

    def _restore(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor):
            own = getattr(self, name)
            if own.shape != value.shape:
                raise UserError(f"{name}: found shape {list(value.shape)}, allowed: {list(own.shape)}")
            own.copy_(value)
        else:
            setattr(self, name, _copy(value))

    def _declared(self, kind: str) -> list[str]:
        return [name for cls in reversed(type(self).__mro__) for name in vars(cls).get(kind, ())]


class Rounds(Algorithm):
    """Counts local steps; H of a round follows from its first step's learning rate (see resync.periods)."""

    shared: ClassVar[tuple[str, ...]] = ("local_steps",)

    def __init__(self, training: Training, period: Period) -> None:
        super().__init__(training)
        self.period = period
        self.local_steps = 0
        self.before_end_of_round: Callable[[], None] | None = None
        """Called when a round ends, before its communication."""

    @property
    def outer_step_follows_lr(self) -> bool:
        """Whether the end of a round depends on the learning rates of its steps, so that all workers need the same."""
        return False

    def after_step(self, lr: float) -> bool:
        if self.local_steps == 0:
            self.h = round_length(self.period, lr, self.steps, self.total_steps, self.warmup_steps)
        self.steps += 1
        self.local_steps += 1
        if self.local_steps < self.h:
            return False
        if self.before_end_of_round:
            self.before_end_of_round()
        self.end_round()
        self.local_steps = 0
        self.rounds += 1
        return True

    @abstractmethod
    def end_round(self) -> None:
        """The communication at the end of a round."""


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else copy(value)
