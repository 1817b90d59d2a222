"""The learning-rate schedules of a configuration: declared here, computed by the functions in `schedules`."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from resync.formulas.periods import in_time_checks, pairs_in_steps
from resync.formulas.schedules import Schedule, constant, cosine, cosine_step, inverse_sqrt, linear, step
from resync.settings.base import Check, Count, Items, NonNegativeNumber, PositiveNumber, Settings, ascending
from resync.settings.options import Course, Part

Decay = Annotated[tuple[PositiveNumber, PositiveNumber], Field(strict=False)]
"""(epoch, factor): from this epoch on (0-based), the learning rate is multiplied by this factor."""


class LearningRate(Part):
    """A declared schedule, in epochs or steps: a warm-up and the schedule proper."""

    name: str
    warmup_epochs: NonNegativeNumber | None = Field(default=None, description="length of the warm-up in epochs")
    warmup_steps: Count | None = Field(default=None, description="length of the warm-up in steps, instead of epochs")
    warmup_start: NonNegativeNumber | None = Field(
        default=None, description="learning rate at the start of the warm-up; null: min_lr, or 0 if there is none"
    )

    def checks(self) -> Iterator[Check]:
        """Require a warm-up in one unit only, and its start only together with it."""
        if self.warmup_epochs is not None and self.warmup_steps is not None:
            beside = f"beside warmup_epochs = {self.warmup_epochs:g}"
            yield ("warmup_steps",), f"found {self.warmup_steps} {beside}, allowed: one of the two"
        if self.warmup_start is not None and not (self.warmup_epochs or self.warmup_steps):
            allowed = "together with warmup_epochs or warmup_steps"
            yield ("warmup_start",), f"found {self.warmup_start:g} without a warm-up, allowed: {allowed}"

    def warmup_length(self, steps_per_epoch: int) -> int:
        """Steps of the warm-up, rounded to the nearest integer."""
        if self.warmup_steps is not None:
            return self.warmup_steps
        return round((self.warmup_epochs or 0) * steps_per_epoch)

    def checks_in(self, course: Course) -> Iterator[Check]:
        """Require a warm-up that ends before the training."""
        if course.warmup_steps >= course.total_steps:
            key = "warmup_epochs" if self.warmup_steps is None else "warmup_steps"
            limit = f"less than the training's {course.epochs} epochs = {course.total_steps} steps"
            yield (key,), f"found {getattr(self, key):g}, allowed: {limit}"

    @abstractmethod
    def of(self, course: Course) -> Schedule:
        """The learning rate as a function of the step."""


class _Constant(Settings):
    name: str
    lr: PositiveNumber = Field(description="learning rate after the warm-up")


class ConstantSchedule(LearningRate, _Constant):
    """A constant learning rate after a linear warm-up."""

    name: Literal["constant"]

    def of(self, course: Course) -> Schedule:
        return constant(self.lr, course.total_steps, course.warmup_steps, self.warmup_start or 0.0)


class _Maximum(Settings):
    name: str
    max_lr: PositiveNumber = Field(description="learning rate at the end of the warm-up")


class _Peak(LearningRate, _Maximum):
    """A schedule with a linear warm-up to `max_lr`."""


class StepSchedule(_Peak):
    """max_lr, multiplied by a factor at each of the given epochs."""

    name: Literal["step"]
    decays: Items[Decay] = Field(min_length=1, description="[epoch, factor] pairs; factors multiply")

    def checks(self) -> Iterator[Check]:
        """Require decays in the order of their epochs."""
        yield from super().checks()
        yield from ascending(("decays",), (epoch for epoch, _ in self.decays))

    def checks_in(self, course: Course) -> Iterator[Check]:
        """Require decays before the end of the training."""
        yield from super().checks_in(course)
        yield from in_time_checks(("decays",), self.decays, course)

    def of(self, course: Course) -> Schedule:
        """The function `step`, with the epochs of decays converted to whole steps."""
        decays = pairs_in_steps(self.decays, course.steps_per_epoch)
        return step(self.max_lr, decays, course.total_steps, course.warmup_steps, self.warmup_start or 0.0)


class _FallingSchedule(_Peak):
    min_lr: NonNegativeNumber = Field(default=0.0, description="learning rate at the end of training")

    def checks(self) -> Iterator[Check]:
        """Require a decreasing schedule."""
        yield from super().checks()
        if self.min_lr > self.max_lr:
            yield ("min_lr",), f"found {self.min_lr:g}, allowed: at most max_lr = {self.max_lr:g}"


class LinearSchedule(_FallingSchedule):
    """Linear decay from max_lr to min_lr."""

    name: Literal["linear"]

    def of(self, course: Course) -> Schedule:
        span = self.max_lr, self.min_lr, course.total_steps, course.warmup_steps, self.warmup_start
        return linear(*span)


class CosineSchedule(_FallingSchedule):
    """Cosine decay from max_lr to min_lr (Loshchilov & Hutter 2017, without restarts)."""

    name: Literal["cosine"]

    def of(self, course: Course) -> Schedule:
        span = self.max_lr, self.min_lr, course.total_steps, course.warmup_steps, self.warmup_start
        return cosine(*span)


class CosineStepSchedule(_FallingSchedule):
    """Cosine decay, rounded to the nearest power of `base` after the warm-up (Gu et al. 2024)."""

    name: Literal["cosine_step"]
    min_lr: PositiveNumber = Field(description="learning rate of the cosine at the end of training")
    base: float = Field(default=2.0, gt=1, description="the learning rate is a power of this number")

    def of(self, course: Course) -> Schedule:
        span = self.max_lr, self.min_lr, course.total_steps, course.warmup_steps, self.warmup_start
        return cosine_step(*span, self.base)


class InverseSqrtSchedule(_Peak):
    """max_lr * sqrt(warm-up steps / step) after the warm-up (Vaswani et al. 2017)."""

    name: Literal["inverse_sqrt"]

    def checks(self) -> Iterator[Check]:
        """Require a warm-up: the decay is measured in units of its length."""
        yield from super().checks()
        if not (self.warmup_steps or self.warmup_epochs):
            yield ("warmup_steps",), "found no warm-up, allowed: warmup_steps or warmup_epochs > 0"

    def of(self, course: Course) -> Schedule:
        return inverse_sqrt(self.max_lr, course.total_steps, course.warmup_steps, self.warmup_start or 0.0)


AnySchedule = Annotated[
    ConstantSchedule | StepSchedule | LinearSchedule | CosineSchedule | CosineStepSchedule | InverseSqrtSchedule,
    Field(discriminator="name"),
]
