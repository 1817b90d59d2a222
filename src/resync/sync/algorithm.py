"""What every synchronisation algorithm is: four moments around one optimizer step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from resync.transport import Transport
from resync.workers import Workers


class Algorithm:
    """Exchanges rows between the workers around an optimizer step; the base class exchanges nothing.

    Attributes: `steps` completed steps, `rounds` completed rounds, `h` local steps of the current round.
    """

    def __init__(self, workers: Workers, transport: Transport, total_steps: int, warmup_steps: int = 0) -> None:
        self.workers = workers
        self.transport = transport
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.steps = 0
        self.rounds = 0
        self.h = 1

    def before_forward(self) -> None:
        """Before the gradient is taken: the parameters at which it is taken may be set here."""

    def after_backward(self) -> None:
        """Between the gradient and the optimizer step."""

    def after_step(self, lr: float) -> bool:
        """After the optimizer step that used `lr`; True when this step ended a round."""
        self.steps += 1
        self.rounds += 1
        return True

    @contextmanager
    def consensus(self) -> Iterator[nn.Module]:
        """The model with the average of all workers' parameters, for evaluation; the workers' own come back after.

        The average is not counted as communication.
        """
        rows = self.workers.rows.data
        saved = rows.clone()
        with self.transport.uncounted():
            self.transport.mean_(rows)
        try:
            yield self.workers.models[0]
        finally:
            with torch.no_grad():
                rows.copy_(saved)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the rows that the algorithm needs to continue exactly."""
        return {"steps": self.steps, "rounds": self.rounds, "h": self.h}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, value in state.items():
            setattr(self, name, value)
