"""Options of Pseudo-Asynchronous Local SGD."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field

from resync.formulas.periods import Constant, Period, Phases, rule_of
from resync.settings.base import Check, NonNegativeNumber
from resync.settings.options import Course
from resync.sync.options._outer import OuterLr, OuterOptions


class PALSGD(OuterOptions):
    """Pseudo-asynchronous Local SGD, DiLoCo whose workers are pulled to the last average (Naganuma et al. 2025)."""

    label = "PALSGD"
    name: Literal["palsgd"] = Field(default="palsgd", init=False)
    lr: OuterLr = 0.1
    probability: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.2, description="probability that a step is a pull to the last average instead of a gradient step"
    )
    strength: NonNegativeNumber = Field(
        default=1.0, description="eta: on average, each step pulls by the fraction eta times the learning rate"
    )
    coins: Literal["own", "common"] = Field(
        default="own",
        description="who draws whether a step is a pull: own, each worker; common, all together, as in the authors' "
        "code, where all ranks have the same seed",
    )
    start: NonNegativeNumber = Field(
        default=0.0, description="epoch of the first local step; before it, gradients are averaged in every step"
    )

    def checks(self) -> Iterator[Check]:
        """Require an H that does not change where steps with averaged gradients come first."""
        if self.start and not isinstance(self.period, Constant):
            found = rule_of(self.period).rule
            yield ("start",), f"found {self.start:g} with the period rule {found}, allowed: 0, or a constant period"

    def checks_in(self, course: Course) -> Iterator[Check]:
        """Require local steps."""
        yield from super().checks_in(course)
        if self.start >= course.epochs:
            yield ("start",), f"found {self.start:g}, allowed: less than epochs = {course.epochs}"

    def in_steps(self, steps_per_epoch: int) -> Self:
        """The same options with the first local step in place of its epoch."""
        return super().in_steps(steps_per_epoch).model_copy(update={"start": round(self.start * steps_per_epoch)})

    @property
    def rule(self) -> Period:
        """The rule for the number of local steps per round, which is 1 while gradients are averaged."""
        if self.start and isinstance(self.period, Constant):
            return Phases(phases=((0, 1), (self.start, self.period.h)))
        return super().rule

    @property
    def averages_gradients(self) -> bool:
        """Whether it does before the first local step."""
        return self.start > 0

    @property
    def engine_may_average(self) -> bool:
        """An engine would average in every step."""
        return False

    @property
    def steps_apart(self) -> bool:
        """A worker that is pulled takes no optimizer step."""
        return True
