"""Options of SNOO."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from resync.formulas.periods import Constant, Period, Phases, rule_of
from resync.settings.base import Check
from resync.sync.options._outer import OuterLr, OuterMomentum, OuterOptions
from resync.sync.options.allreduce import AllReduce


class SNOO(OuterOptions):
    """An outer step of Nesterov momentum around synchronous data-parallel training (Kallusky et al. 2025).

    With momentum 0 it is Lookahead.
    """

    label = "SNOO"
    name: Literal["snoo"] = Field(default="snoo", init=False)
    lr: OuterLr = 0.68
    momentum: OuterMomentum = 0.37
    at: Literal["end", "start"] = Field(
        default="end",
        description="when outer steps are taken: end, after steps H, 2 H, ... and the last step; start, after steps 1, "
        "H + 1, 2 H + 1, ..., like the record of September 2025 of modded-nanogpt, whose counter starts at 0: the "
        "steps after the last of these stay without one",
    )

    def checks(self) -> Iterator[Check]:
        """Require a constant period for outer steps that are counted from 0."""
        if self.at == "start" and not isinstance(self.period, Constant):
            found = rule_of(self.period).rule
            yield ("at",), f"found start with the period rule {found}, allowed: end, or a constant period"

    @property
    def interval(self) -> int | None:
        """H, if the outer steps are after steps 1, H + 1, 2 H + 1, ..."""
        return self.period.h if self.at == "start" and isinstance(self.period, Constant) else None

    @property
    def rule(self) -> Period:
        """The rule for the number of local steps before an outer step."""
        return Phases(phases=((0, 1), (1, self.interval))) if self.interval else super().rule

    @property
    def averages_gradients(self) -> bool:
        """Gradients are averaged in every step."""
        return True

    @property
    def inner(self) -> AllReduce:
        """The averages of gradients within the rounds."""
        return AllReduce()

    def vectors_per_round(self, state_vectors: int) -> int:
        """Nothing: all workers take the same outer step."""
        return 0
