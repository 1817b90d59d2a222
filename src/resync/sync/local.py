"""Local SGD and Local AdamW: average the parameters after every round of local steps."""

from collections.abc import Sequence
from typing import Any

from resync.periods import Period, round_length
from resync.sync.algorithm import Algorithm, Training
from resync.sync.fields import average_fields


class Local(Algorithm):
    """Local OPT with a period rule (Gu et al. 2024, Algorithm 2; QSR is the power rule with power 2).

        for every round:
            H = period(lr of the round's first step)
            every worker: H optimizer steps on its own gradients
            x_k = mean over k of x_k

    H is fixed in a round and the last round is cut to end at `total_steps`. Optimizer state stays with its worker,
    but for the fields named in `average_state`. H follows from the learning rate that the round's first step really
    used, so it cannot be asked for too early.

    Raises ValueError at the first average for a field that the optimizer does not have.
    """

    def __init__(self, training: Training, *, period: Period, average_state: Sequence[str] = ()) -> None:
        super().__init__(training)
        self.period = period
        self.average_state = tuple(average_state)
        self.local_steps = 0

    def after_step(self, lr: float) -> bool:
        """Count the local step; at the end of the round, average."""
        if self.local_steps == 0:
            self.h = round_length(self.period, lr, self.steps, self.total_steps, self.warmup_steps)
        self.steps += 1
        self.local_steps += 1
        if self.local_steps < self.h:
            return False
        self.synchronise()
        average_fields(self.workers, self.optimizer, self.transport, self.average_state)
        self.local_steps = 0
        self.rounds += 1
        return True

    def state_dict(self) -> dict[str, Any]:
        """The base state and the position in the round."""
        return super().state_dict() | {"local_steps": self.local_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        self.local_steps = state["local_steps"]


build = Local
