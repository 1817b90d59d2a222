"""When a run is evaluated, as its configuration says before it trains."""

from bisect import bisect_right
from itertools import accumulate

from resync.runs.run.training import RunSettings
from resync.workers.formulas.periods import rounds

EPOCH_ROUNDING = 1e-6
"""Difference of two numbers of epochs that are the same."""


def evaluation_steps(run: RunSettings) -> frozenset[int]:
    """The steps after which a run is evaluated, always with the last step."""
    settings, total = run.evaluation, run.total_steps
    epochs = range(settings.every_epochs * run.steps_per_epoch, total, settings.every_epochs * run.steps_per_epoch)
    if settings.at is None and settings.every_rounds is None:
        return frozenset((*epochs, total))
    ends = list(accumulate(rounds(run.period, run.lr, total, run.warmup_steps)))
    if settings.every_rounds:
        return frozenset((*ends[settings.every_rounds - 1 :: settings.every_rounds], total))
    return frozenset((*(ends[bisect_right(ends, end) - 1] for end in epochs if end >= ends[0]), total))


def is_evaluated_at(run: RunSettings, epoch: float) -> bool:
    """Whether a run is evaluated after this number of epochs, unless it ends before."""
    step = round(epoch * run.steps_per_epoch)
    return abs(step / run.steps_per_epoch - epoch) < EPOCH_ROUNDING and step in evaluation_steps(run)
