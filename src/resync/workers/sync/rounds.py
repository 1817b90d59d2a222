"""Rounds of local steps: when one starts and when it ends."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from resync.workers.formulas.periods import Period, round_length
from resync.workers.sync.algorithm import Algorithm, Training


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
