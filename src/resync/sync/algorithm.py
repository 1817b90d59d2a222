"""The base of every synchronisation algorithm: moments around one optimizer step."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from resync.engine.transport import Transport
from resync.engine.workers import Workers


@dataclass(frozen=True)
class Training:
    """The parts of a training that an algorithm works on.

    Attributes:
        workers: the workers of this process.
        transport: the way to the others.
        optimizer: what updates the workers' parameters.
        total_steps: steps of the whole training, where it is known.
        warmup_steps: steps of the learning rate's warm-up.
        seed: of everything that an algorithm draws.
        averaged_by_engine: whether gradients are averages over all workers when `after_backward` is called.
    """

    workers: Workers
    transport: Transport
    optimizer: Optimizer
    total_steps: float = inf
    warmup_steps: int = 0
    seed: int = 0
    averaged_by_engine: bool = False


class Algorithm:
    """Exchanges rows between the workers around an optimizer step; the base class exchanges nothing.

    Attributes: `steps` completed steps, `rounds` completed rounds, `h` local steps of the current round.

    A class names what it needs to continue exactly, beside the rows: `shared` attributes are the same on every process,
    `per_worker` ones are tensors [k, ...] with a row for every local worker. Those of its bases are added.
    """

    shared: ClassVar[tuple[str, ...]] = ("steps", "rounds", "h")
    per_worker: ClassVar[tuple[str, ...]] = ()

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
    def rows(self) -> Tensor:
        """The parameters of the local workers, [k, P]."""
        return self.workers.rows.data

    def before_forward(self) -> None:
        """Before the gradient is taken: the parameters at which it is taken may be set here."""

    def after_backward(self) -> None:
        """Between the gradient and the optimizer step."""

    def after_step(self, lr: float) -> bool:
        """After the optimizer step that used `lr`; True when this step ended a round."""
        self.steps += 1
        self.rounds += 1
        return True

    def synchronise(self) -> None:
        """Give every worker the consensus, for good. Between two steps."""
        self.transport.mean_(self.rows)

    def close(self) -> None:
        """End what the algorithm does in the background; collective, after the last step."""

    @contextmanager
    def consensus(self) -> Iterator[nn.Module]:
        """The model with the average of all workers' parameters, for evaluation; the workers' own come back after.

        Between two steps. The average is not counted as communication.
        """
        rows = self.rows
        saved = rows.clone()
        with self.transport.uncounted(), torch.no_grad():
            self.to_consensus(rows)
        try:
            yield self.workers.models[0]
        finally:
            with torch.no_grad():
                rows.copy_(saved)

    def to_consensus(self, rows: Tensor) -> None:
        """Overwrite `rows` with the average over all workers, and change nothing else."""
        self.transport.mean_(rows)

    def state_dict(self) -> dict[str, Any]:
        """Copies of what is declared: under "workers" the tensors of `per_worker`, beside them `shared`."""
        shared = {name: _copy(getattr(self, name)) for name in self._declared("shared")}
        return shared | {"workers": {name: getattr(self, name).clone() for name in self._declared("per_worker")}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name in self._declared("shared"):
            self._restore(name, state[name])
        for name in self._declared("per_worker"):
            self._restore(name, state["workers"][name])

    def _restore(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor):
            getattr(self, name).copy_(value)
        else:
            setattr(self, name, _copy(value))

    def _declared(self, kind: str) -> list[str]:
        return [name for cls in reversed(type(self).__mro__) for name in vars(cls).get(kind, ())]


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else copy(value)
