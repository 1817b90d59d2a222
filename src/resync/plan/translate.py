"""From the configuration of a run to the pure functions that planning and training share."""

from collections.abc import Iterable
from typing import TypeVar, assert_never

from resync.config import Run
from resync.config.period import ConstantPeriod, PhasesPeriod
from resync.config.schedule import (
    ConstantSchedule,
    CosineSchedule,
    CosineStepSchedule,
    InverseSqrtSchedule,
    LinearSchedule,
    StepSchedule,
)
from resync.formulas import schedules
from resync.formulas.periods import Constant, Period, Phases, PowerRule
from resync.formulas.schedules import Schedule

T = TypeVar("T")


def lr_of(run: Run) -> Schedule:
    """Return the learning rate of `run` as a function of the step; epochs of decays become whole steps."""
    chosen = run.schedule
    span = (run.total_steps, run.warmup_steps)
    match chosen:
        case ConstantSchedule():
            return schedules.constant(chosen.lr, *span, warmup_start=chosen.warmup_start or 0.0)
        case StepSchedule():
            decays = phases_of(run, chosen.decays)
            return schedules.step(chosen.max_lr, decays, *span, warmup_start=chosen.warmup_start or 0.0)
        case LinearSchedule():
            return schedules.linear(chosen.max_lr, chosen.min_lr, *span, warmup_start=chosen.warmup_start)
        case CosineSchedule():
            return schedules.cosine(chosen.max_lr, chosen.min_lr, *span, warmup_start=chosen.warmup_start)
        case CosineStepSchedule():
            falling = (chosen.max_lr, chosen.min_lr, *span)
            return schedules.cosine_step(*falling, warmup_start=chosen.warmup_start, base=chosen.base)
        case InverseSqrtSchedule():
            return schedules.inverse_sqrt(chosen.max_lr, *span, warmup_start=chosen.warmup_start or 0.0)
        case _:
            assert_never(chosen)


def period_of(run: Run) -> Period:
    """Return the period rule of `run`; an algorithm without one synchronises after every step."""
    period = run.sync.options.get("period")
    if period is None:
        return Constant(1)
    if isinstance(period, ConstantPeriod):
        return Constant(period.h)
    if isinstance(period, PhasesPeriod):
        rules = ((first, None if h == "end" else Constant(h)) for first, h in phases_of(run, period.phases))
        return Phases(tuple(rules))
    return PowerRule(period.alpha, period.power, period.h_base, period.h_warmup, period.h_max)


def phases_of(run: Run, phases: Iterable[tuple[float, T]]) -> list[tuple[int, T]]:
    """Return (first epoch, value) pairs as (first step, value), rounded to whole steps."""
    return [(round(epoch * run.steps_per_epoch), value) for epoch, value in phases]
