"""Learning rates as pure functions of the step, so that costs and periods can be computed without training.

A schedule is declared in a configuration, in epochs or steps. After the end of the training it stays at its last value,
but the inverse square root keeps falling. The papers use two forms of linear warm-up, which `warmup_ahead` chooses:

* False: start + (max - start) * t / warm-up steps. Step 0 uses the start value itself, and the peak is first used by
  the step after the warm-up (original code of Gu et al. 2023 and 2024; Ott et al. 2018).
* True: start + (max - start) * (t + 1) / warm-up steps. No step uses the start value, and the last step of the warm-up
  already uses the peak (original code of Assran et al. 2019). The default of `step` and `constant`.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from resync.base.settings.base import (
    Check,
    Items,
    NonNegativeNumber,
    PositiveInt,
    PositiveNumber,
    Settings,
    check_ascending,
    wrong,
)
from resync.base.settings.errors import show
from resync.base.settings.options import Part, TrainingShape
from resync.base.settings.units import EPOCH, LEARNING_RATE, STEPS, WARMUP_EPOCHS, WARMUP_LEARNING_RATE, InnerLR, Steps
from resync.workers.formulas.periods import in_time_checks

__all__ = [
    "ConstantSchedule", "CosineSchedule", "CosineStepSchedule", "InverseSqrtSchedule", "LearningRate", "LinearSchedule",
    "Schedule", "StepSchedule",
]  # fmt: skip

Schedule = Callable[[int], float]
"""From the step about to be taken (0-based) to its learning rate, a Python float: numpy's would break checkpoints."""

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
        """The learning rate of every step of a training."""
        warmup, per_epoch = shape.warmup_steps, shape.steps_per_epoch
        start = self.lowest if self.warmup_start is None else self.warmup_start
        ahead = self.ahead if self.warmup_ahead is None else self.warmup_ahead
        every = per_epoch if self.warmup_every == "epoch" else self.warmup_every or 1

        def lr(step: int) -> float:
            if step < warmup:
                step -= step % per_epoch % every
                if start < self.peak or not self.ahead:  # in the code of Assran et al. 2019 no warm-up falls
                    return float(start + (self.peak - start) * (step + ahead) / warmup)
            return float(self.after_warmup(step, shape))

        return lr

    ahead: ClassVar[bool] = False
    """Whether the warm-up is one step ahead where `warmup_ahead` does not say so."""

    @property
    @abstractmethod
    def peak(self) -> float:
        """The learning rate to which the warm-up rises."""

    @property
    def lowest(self) -> float:
        """The learning rate from which it rises where `warmup_start` does not say so."""
        return 0.0

    @abstractmethod
    def after_warmup(self, step: int, shape: TrainingShape) -> float:
        """The learning rate of a step after the warm-up."""


class _Constant(Settings):
    name: str
    lr: InnerLR = Field(description="learning rate after the warm-up")


class ConstantSchedule(LearningRate, _Constant):
    """A constant learning rate after a linear warm-up."""

    ahead: ClassVar[bool] = True
    name: Literal["constant"]

    @property
    def peak(self) -> float:
        return self.lr

    def after_warmup(self, step: int, shape: TrainingShape) -> float:
        return self.lr


class _Maximum(Settings):
    name: str
    max_lr: InnerLR = Field(description="learning rate at the end of the warm-up")


class _Peak(LearningRate, _Maximum):
    """A schedule with a linear warm-up to `max_lr`."""

    @property
    def peak(self) -> float:
        return self.max_lr


class StepSchedule(_Peak):
    """max_lr, multiplied by a factor at each of the given epochs (Assran et al. 2019)."""

    ahead: ClassVar[bool] = True
    name: Literal["step"]
    decays: Items[Decay] = Field(min_length=1, description="[epoch, factor] pairs; factors multiply")

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        yield from check_ascending(("decays",), (epoch for epoch, _ in self.decays))

    def checks_in(self, shape: TrainingShape) -> Iterator[Check]:
        yield from super().checks_in(shape)
        yield from in_time_checks(("decays",), self.decays, shape)

    def after_warmup(self, step: int, shape: TrainingShape) -> float:
        reached = (factor for epoch, factor in self.decays if step >= round(epoch * shape.steps_per_epoch))
        return self.max_lr * math.prod(reached)


class _FallingSchedule(_Peak):
    min_lr: Annotated[NonNegativeNumber, LEARNING_RATE] = Field(
        default=0.0, description="learning rate at the end of the schedule"
    )

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        if self.min_lr > self.max_lr:
            yield wrong("min_lr", f"{self.min_lr:g}", f"at most max_lr = {self.max_lr:g}")

    @property
    def lowest(self) -> float:
        return self.min_lr

    def after_warmup(self, step: int, shape: TrainingShape) -> float:
        progress = min((step - shape.warmup_steps) / (shape.total_steps - shape.warmup_steps), 1.0)
        return self.min_lr + (self.max_lr - self.min_lr) * self.share(progress)

    @abstractmethod
    def share(self, progress: float) -> float:
        """What is left of the difference of `max_lr` and `min_lr` after this part of the time since the warm-up."""


class LinearSchedule(_FallingSchedule):
    """Linear decay from max_lr to min_lr."""

    name: Literal["linear"]

    def share(self, progress: float) -> float:
        return 1.0 - progress


class _Cosine(_FallingSchedule):
    def share(self, progress: float) -> float:
        return (1.0 + math.cos(math.pi * progress)) / 2.0


class CosineSchedule(_Cosine):
    """Cosine decay from max_lr to min_lr (Loshchilov & Hutter 2017, without restarts)."""

    name: Literal["cosine"]


class CosineStepSchedule(_Cosine):
    """Cosine decay, rounded to the nearest power of `base` after the warm-up (Gu et al. 2024).

    The warm-up ends below max_lr, and the first step after it jumps to the power nearest to max_lr.
    """

    name: Literal["cosine_step"]
    min_lr: InnerLR = Field(description="learning rate of the cosine at the end of the schedule")
    base: float = Field(gt=1, description="the learning rate is a power of this number")

    def after_warmup(self, step: int, shape: TrainingShape) -> float:
        return float(self.base ** round(math.log(super().after_warmup(step, shape), self.base)))


class InverseSqrtSchedule(_Peak):
    """max_lr * sqrt(warm-up steps / step) after the warm-up (Vaswani et al. 2017, section 5.3; Ott et al. 2018)."""

    name: Literal["inverse_sqrt"]

    def checks(self) -> Iterator[Check]:
        """Require a warm-up: the decay is measured in units of its length."""
        yield from super().checks()
        if not (self.warmup_steps or self.warmup_epochs):
            yield wrong("warmup_steps", "no warm-up", "warmup_steps or warmup_epochs > 0")

    def after_warmup(self, step: int, shape: TrainingShape) -> float:
        return self.max_lr * math.sqrt(shape.warmup_steps / step)


AnySchedule = Annotated[
    ConstantSchedule | StepSchedule | LinearSchedule | CosineSchedule | CosineStepSchedule | InverseSqrtSchedule,
    Field(discriminator="name"),
]
