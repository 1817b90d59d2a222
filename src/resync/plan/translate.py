"""From the configuration of a run to the pure functions that planning and training share."""

from typing import assert_never

from resync.config import Run
from resync.config.schedule import (
    ConstantSchedule,
    CosineSchedule,
    CosineStepSchedule,
    InverseSqrtSchedule,
    LinearSchedule,
    StepSchedule,
)
from resync.formulas import schedules
from resync.formulas.periods import pairs_in_steps
from resync.formulas.schedules import Schedule


def lr_of(run: Run) -> Schedule:
    """Return the learning rate of `run` as a function of the step; epochs of decays become whole steps."""
    chosen = run.schedule
    span = (run.total_steps, run.warmup_steps)
    match chosen:
        case ConstantSchedule():
            return schedules.constant(chosen.lr, *span, warmup_start=chosen.warmup_start or 0.0)
        case StepSchedule():
            decays = pairs_in_steps(chosen.decays, run.steps_per_epoch)
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
