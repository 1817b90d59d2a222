"""Periods: the number of local steps H of a round, as a pure function of the step and its learning rate.

A period rule only says how long a round that starts at a given step should be. `round_length` is the one place that
applies the rest: the warm-up, rounding down and truncation at the end of training. Training calls it at the start of
every round and planning calls it for all rounds (`rounds`), so that the planned volume is that of the training. A rule
is also its own declaration: the content of `period` in a configuration, and the object that Python code builds.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    PlainValidator,
    Strict,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from resync.base.errors import UserError
from resync.base.settings.base import Check, PositiveNumber, Reading, Several, check_ascending, checks_failed
from resync.base.settings.errors import KeyPath, show
from resync.base.settings.options import Part, TrainingShape
from resync.base.settings.units import LOCAL_STEPS, Epoch, InnerLR, LocalSteps

__all__ = ["Constant", "Period", "Phases", "PowerRule", "round_length", "rounds"]


class Period(Part):
    """A rule for H. Further rules (such as a cap on another rule) only need to implement `local_steps`."""

    rule: str

    @property
    def follows_lr(self) -> bool:
        """Whether H depends on the learning rate, which must then be known before the training starts."""
        return False

    @abstractmethod
    def local_steps(self, lr: float, step: int, warming_up: bool) -> float:
        """Return the unrounded length of a round that starts at `step` with learning rate `lr`."""


class Constant(Period):
    """The same `h` in every round, as in Local SGD; h = 1 averages after every step."""

    rule: Literal["constant"] = Field(default="constant", init=False)
    h: LocalSteps = Field(description="local steps in a round")

    def local_steps(self, lr: float, step: int, warming_up: bool) -> int:
        return self.h


class PowerRule(Period):
    """H = max(h_base, floor((alpha / lr)^power)), lr at the round's first step: QSR and variants (Gu et al. 2024)."""

    rule: Literal["power"] = Field(default="power", init=False)
    alpha: InnerLR = Field(description="growth coefficient, in the unit of the learning rate")
    power: PositiveNumber = Field(default=2.0, description="2 is QSR, 1 the linear rule, 3 the cubic rule")
    h_base: LocalSteps = Field(default=1, description="smallest number of local steps in a round")
    h_warmup: LocalSteps | None = Field(
        default=None,
        description="H of rounds that start during the warm-up; null: h_base. The paper (unverified) has that of the "
        "first round after the warm-up, which is larger where (alpha / peak)^power is",
    )

    @property
    def follows_lr(self) -> bool:
        return True

    def checks_in(self, shape: TrainingShape) -> Iterator[Check]:
        if self.h_warmup is not None and not shape.warmup_steps:
            yield ("h_warmup",), f"found {self.h_warmup} without a warm-up in schedule, allowed: null"

    def local_steps(self, lr: float, step: int, warming_up: bool) -> float:
        """Return H before rounding down; infinite where `lr` is 0: workers that do not move cannot drift apart.

        During the warm-up, whose small learning rates would lead to very long rounds, it is `h_warmup`.
        """
        if warming_up:
            return self.h_base if self.h_warmup is None else self.h_warmup
        if not lr >= 0:
            raise UserError(f"the learning rate of step {step} is {lr}, expected >= 0")
        try:
            return max(self.h_base, (self.alpha / lr) ** self.power)
        except (ZeroDivisionError, OverflowError):
            return math.inf


def _h(value: Any) -> Any:
    if value == "end" or (type(value) is int and value >= 1):
        return value
    raise checks_failed("h", [((), f"found {show(value)}, allowed: integer >= 1 or end")])


_H = Annotated[
    LocalSteps | Literal["end"],
    PlainValidator(_h),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1, "x-unit": LOCAL_STEPS.name}, {"const": "end"}]}),
]


class Phases(Period):
    """H changes over the course of training: post-local SGD (Lin et al. 2020) and SWAP (Gupta et al. 2020).

    Post-local SGD is `Phases(phases=[(0, 1), (switch, h)])`. SWAP averages every h steps until the switch and then
    once, at the end: `Phases(phases=[(0, h), (switch, "end")])`. The end of a phase also ends the round. Phases are in
    epochs in a configuration and in steps in `local_steps`.
    """

    rule: Literal["phases"] = Field(default="phases", init=False)
    phases: Several[Annotated[tuple[Epoch, _H], Strict(False)]] = Field(
        min_length=1,
        description="[first epoch, H] pairs, starting at epoch 0; H is a number, or end: average at the end only",
    )

    def checks(self) -> Iterator[Check]:
        yield from phase_checks(("phases",), [first for first, _ in self.phases])
        for index, (_, h) in enumerate(self.phases[:-1]):
            if h == "end":
                yield ("phases", index, 1), "found end, allowed: integer >= 1; only the last phase may have end"

    def checks_in(self, shape: TrainingShape) -> Iterator[Check]:
        return in_time_checks(("phases",), self.phases, shape)

    def local_steps(self, lr: float, step: int, warming_up: bool) -> float:
        current = max(index for index, (first, _) in enumerate(self.phases) if first <= step)
        end = next((first for first, _ in self.phases[current + 1 :]), math.inf)
        h = self.phases[current][1]
        return min(math.inf if h == "end" else h, end - step)

    def spans(self, first: int, last: int) -> Iterator[tuple[int, int, int | Literal["end"]]]:
        """The first step, the step after the last one, and H of every phase, of the steps from `first` to `last`."""
        ends = [*(start for start, _ in self.phases[1:]), last]
        for (start, h), end in zip(self.phases, ends, strict=True):
            if max(first, start) < min(end, last):
                yield int(max(first, start)), int(min(end, last)), h


class _ByRule:
    """Chooses among the rules of this module by `rule`; in Python an integer or a custom rule is accepted too."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        rules = handler.generate_schema(Annotated[Constant | PowerRule | Phases, Field(discriminator="rule")])
        return core_schema.with_info_wrap_validator_function(self._validate, rules)

    @staticmethod
    def _validate(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        if isinstance(value, Period):
            return value
        if type(value) is not int or isinstance(info.context, Reading):
            return handler(value)
        if value < 1:
            raise checks_failed("period", [((), f"found {value}, allowed: integer >= 1 or a rule")])
        return Constant(h=value)


PeriodRule = Annotated[Period | int, _ByRule()]
"""The type of an option that is a period: after validation always a Period."""


def rule_of(period: Period | int) -> Period:
    """The rule for a period, which is constant if given as an integer."""
    return period if isinstance(period, Period) else Constant(h=period)


def phase_checks(key: KeyPath, firsts: Sequence[float]) -> Iterator[Check]:
    """Yield phases that do not start at 0 or are not in order."""
    if firsts and firsts[0] != 0:
        yield (*key, 0, 0), f"found {firsts[0]:g}, allowed: 0, because the first phase starts with the training"
    yield from check_ascending(key, firsts)


def in_time_checks(key: KeyPath, pairs: Iterable[tuple[float, Any]], shape: TrainingShape) -> Iterator[Check]:
    """Yield [epoch, value] pairs whose epoch is beyond the end of the training."""
    for index, (epoch, _) in enumerate(pairs):
        if epoch >= shape.epochs:
            limit = f"less than epochs = {shape.epochs}, or it has no effect"
            yield (*key, index, 0), f"found {epoch:g}, allowed: {limit}"


def round_length(period: Period, lr_value: float, step: int, total_steps: float, warmup_steps: int) -> int:
    """Return H of the round whose first step is `step`; it stays fixed although the learning rate changes.

    A round that starts in the warm-up may extend beyond its end. The last round is truncated so that it ends with step
    `total_steps`. H is never below 1, so workers average after every step beyond `total_steps`.
    Source: original code of Gu et al. 2024; unlike there, a constant H is truncated as well. `step` is 0-based, and
    `lr_value` its learning rate.
    """
    unrounded = period.local_steps(lr=lr_value, step=step, warming_up=step < warmup_steps)
    length = min(unrounded, total_steps - step)
    if length == math.inf:
        raise UserError(f"the round that starts at step {step} has no end: give total_steps")
    return max(1, math.floor(length))


def rounds(
    period: Period, lr: Callable[[int], float], total_steps: int, warmup_steps: int, first: int = 0
) -> list[int]:
    """Return H of every round from step `first` to `total_steps`; `lr` is only called for their first steps."""
    if isinstance(period, Constant):
        whole, rest = divmod(max(0, total_steps - first), period.h)
        return [period.h] * whole + [rest] * bool(rest)
    if isinstance(period, Phases):
        return [
            length
            for start, end, h in period.spans(first, total_steps)
            for length in ([end - start] if h == "end" else rounds(Constant(h=h), lr, end, warmup_steps, start))
        ]
    lengths: list[int] = []
    step = first
    while step < total_steps:
        lengths.append(round_length(period, lr(step), step, total_steps, warmup_steps))
        step += lengths[-1]
    return lengths
