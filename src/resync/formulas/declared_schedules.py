"""The learning-rate schedules of a configuration: declared here, computed by the functions in `schedules`."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from resync.formulas.periods import in_time_checks
from resync.formulas.schedules import Schedule, constant, cosine, cosine_step, inverse_sqrt, linear, staircase, step
from resync.settings.base import (
    Check,
    Items,
    NonNegativeNumber,
    PositiveInt,
    PositiveNumber,
    Settings,
    check_ascending,
    wrong,
)
from resync.settings.errors import show
from resync.settings.options import Part, TrainingShape
from resync.settings.units import EPOCH, LEARNING_RATE, STEPS, WARMUP_EPOCHS, WARMUP_LEARNING_RATE, InnerLR, Steps

Decay = Annotated[tuple[Annotated[PositiveNumber, EPOCH], PositiveNumber], Field(strict=False)]
"""(epoch, factor): from this epoch on (0-based), the learning rate is multiplied by this factor."""


class LearningRate(Part):
    """A declared schedule, in epochs or steps: a warm-up and the schedule proper."""

    name: str
    warmup_epochs: Annotated[NonNegativeNumber, WARMUP_EPOCHS] | None = Field(
        default=None, description="length of the warm-up in epochs"
    )
    warmup_steps: Steps | None = Field(default=None, description="length of the warm-up in steps, instead of epochs")
    warmup_start: Annotated[NonNegativeNumber, WARMUP_LEARNING_RATE] | None = Field(
        default=None, description="learning rate at the start of the warm-up; null: min_lr, or 0 if there is none"
    )
    warmup_ahead: bool | None = Field(
        default=None,
        description="whether step t = 0, 1, ... of a warm-up of W steps is at (t + 1) / W of the way (SGP's code) and "
        "not at t / W (code of Local SGD and QSR); null: true for constant and step, false for the others",
    )
    warmup_every: Annotated[PositiveInt, STEPS] | Literal["epoch"] | None = Field(
        default=None,
        description="steps for which the learning rate of the warm-up is held, counted from the start of each epoch "
        "(100 in SGP's code); epoch: for the whole epoch; null: it rises in every step",
    )

    def checks(self) -> Iterator[Check]:
        if self.warmup_epochs is not None and self.warmup_steps is not None:
            found = f"{self.warmup_steps} beside warmup_epochs = {self.warmup_epochs:g}"
            yield wrong("warmup_steps", found, "one of the two")
        for key in ("warmup_start", "warmup_ahead", "warmup_every"):
            value = getattr(self, key)
            if value is not None and not (self.warmup_epochs or self.warmup_steps):
                yield wrong(key, f"{show(value)} without a warm-up", "together with warmup_epochs or warmup_steps")

    def warmup_length(self, steps_per_epoch: int) -> int:
        if self.warmup_steps is not None:
            return self.warmup_steps
        return round((self.warmup_epochs or 0) * steps_per_epoch)

    def checks_in(self, shape: TrainingShape) -> Iterator[Check]:
        if shape.warmup_steps and shape.warmup_steps >= shape.total_steps:
            key = "warmup_epochs" if self.warmup_steps is None else "warmup_steps"
            limit = f"less than the training's {shape.epochs} epochs = {shape.total_steps} steps"
            yield wrong(key, f"{getattr(self, key):g}", limit)

    def of(self, shape: TrainingShape) -> Schedule:
        smooth = self.smooth(shape)
        if self.warmup_every is None:
            return smooth
        every = shape.steps_per_epoch if self.warmup_every == "epoch" else self.warmup_every
        return staircase(smooth, shape.warmup_steps, every, shape.steps_per_epoch)

    @abstractmethod
    def smooth(self, shape: TrainingShape) -> Schedule:
        """The learning rate without the stairs of `warmup_every`."""

    def _warmup(self, shape: TrainingShape) -> dict[str, Any]:
        given = {"warmup_start": self.warmup_start, "warmup_ahead": self.warmup_ahead}
        return {"warmup_steps": shape.warmup_steps} | {key: val for key, val in given.items() if val is not None}


class _Constant(Settings):
    name: str
    lr: InnerLR = Field(description="learning rate after the warm-up")


class ConstantSchedule(LearningRate, _Constant):
    """A constant learning rate after a linear warm-up."""

    name: Literal["constant"]

    def smooth(self, shape: TrainingShape) -> Schedule:
        return constant(self.lr, max(1, shape.total_steps), **self._warmup(shape))  # where nothing is trained too


class _Maximum(Settings):
    name: str
    max_lr: InnerLR = Field(description="learning rate at the end of the warm-up")


class _Peak(LearningRate, _Maximum):
    """A schedule with a linear warm-up to `max_lr`."""


class StepSchedule(_Peak):
    """max_lr, multiplied by a factor at each of the given epochs."""

    name: Literal["step"]
    decays: Items[Decay] = Field(min_length=1, description="[epoch, factor] pairs; factors multiply")

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield from check_ascending(("decays",), (epoch for epoch, _ in self.decays))

    def checks_in(self, shape: TrainingShape) -> Iterator[Check]:
        yield from super().checks_in(shape)
        yield from in_time_checks(("decays",), self.decays, shape)

    def smooth(self, shape: TrainingShape) -> Schedule:
        decays = [(round(epoch * shape.steps_per_epoch), factor) for epoch, factor in self.decays]
        return step(self.max_lr, decays, shape.total_steps, **self._warmup(shape))


class _FallingSchedule(_Peak):
    min_lr: Annotated[NonNegativeNumber, LEARNING_RATE] = Field(
        default=0.0, description="learning rate at the end of the schedule"
    )

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        if self.min_lr > self.max_lr:
            yield wrong("min_lr", f"{self.min_lr:g}", f"at most max_lr = {self.max_lr:g}")

    def _span(self, shape: TrainingShape) -> tuple[float, float, int]:
        return self.max_lr, self.min_lr, shape.total_steps


class LinearSchedule(_FallingSchedule):
    """Linear decay from max_lr to min_lr."""

    name: Literal["linear"]

    def smooth(self, shape: TrainingShape) -> Schedule:
        return linear(*self._span(shape), **self._warmup(shape))


class CosineSchedule(_FallingSchedule):
    """Cosine decay from max_lr to min_lr (Loshchilov & Hutter 2017, without restarts)."""

    name: Literal["cosine"]

    def smooth(self, shape: TrainingShape) -> Schedule:
        return cosine(*self._span(shape), **self._warmup(shape))


class CosineStepSchedule(_FallingSchedule):
    """Cosine decay, rounded to the nearest power of `base` after the warm-up (Gu et al. 2024)."""

    name: Literal["cosine_step"]
    min_lr: InnerLR = Field(description="learning rate of the cosine at the end of the schedule")
    base: float = Field(default=2.0, gt=1, description="the learning rate is a power of this number")

    def smooth(self, shape: TrainingShape) -> Schedule:
        return cosine_step(*self._span(shape), base=self.base, **self._warmup(shape))


class InverseSqrtSchedule(_Peak):
    """max_lr * sqrt(warm-up steps / step) after the warm-up (Vaswani et al. 2017)."""

    name: Literal["inverse_sqrt"]

    def checks(self) -> Iterator[Check]:
        """Require a warm-up: the decay is measured in units of its length."""
        yield from super().checks()
        if not (self.warmup_steps or self.warmup_epochs):
            yield wrong("warmup_steps", "no warm-up", "warmup_steps or warmup_epochs > 0")

    def smooth(self, shape: TrainingShape) -> Schedule:
        return inverse_sqrt(self.max_lr, shape.total_steps, **self._warmup(shape))


AnySchedule = Annotated[
    ConstantSchedule | StepSchedule | LinearSchedule | CosineSchedule | CosineStepSchedule | InverseSqrtSchedule,
    Field(discriminator="name"),
]
