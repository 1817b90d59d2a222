"""What every synchronisation algorithm is: four moments around one optimizer step."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from resync.engine.transport import Transport
from resync.engine.workers import Workers


@dataclass(frozen=True)
class Training:
    """What an algorithm works on.

    Attributes:
        workers: the workers of this process.
        transport: the way to the others.
        optimizer: what updates the workers' parameters.
        total_steps: steps of the whole training, where it is known.
        warmup_steps: steps of the learning rate's warm-up.
        seed: of everything that an algorithm draws.
        clip_norm: largest L2 norm of the gradient that the optimizer gets; None: no limit.
    """

    workers: Workers
    transport: Transport
    optimizer: Optimizer
    total_steps: float = inf
    warmup_steps: int = 0
    seed: int = 0
    clip_norm: float | None = None


class Algorithm:
    """Exchanges rows between the workers around an optimizer step; the base class exchanges nothing.

    Attributes: `steps` completed steps, `rounds` completed rounds, `h` local steps of the current round.
    """

    averages_gradients = False
    """Whether `after_backward` changes the gradients; else it leaves them alone."""

    def __init__(self, training: Training) -> None:
        self.workers = training.workers
        self.transport = training.transport
        self.optimizer = training.optimizer
        self.total_steps = training.total_steps
        self.warmup_steps = training.warmup_steps
        self.seed = training.seed
        self.clip_norm = training.clip_norm
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

    def step(self, lr: float) -> None:
        """The optimizer step itself."""
        if self.clip_norm:
            self.workers.clip_gradients(self.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()

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
            self._to_consensus(rows)
        try:
            yield self.workers.models[0]
        finally:
            with torch.no_grad():
                rows.copy_(saved)

    def _to_consensus(self, rows: Tensor) -> None:
        """Overwrite `rows` with the average over all workers, and change nothing else."""
        self.transport.mean_(rows)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the rows that the algorithm needs to continue exactly.

        What is under "workers" is a tensor [k, ...] each, with a row for every local worker; all else is the same on
        every process.
        """
        return {"steps": self.steps, "rounds": self.rounds, "h": self.h, "workers": {}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name in ("steps", "rounds", "h"):
            setattr(self, name, state[name])
