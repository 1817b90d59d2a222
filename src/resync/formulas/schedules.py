"""Learning rates as pure functions of the step, so that costs and periods can be computed without training.

Each function here returns a schedule: a picklable callable from the step about to be taken (0-based) to its
learning rate, always a Python float, because numpy scalars would end up in checkpoints and break their
weights-only loading. After `total_steps` a schedule stays at its last value, but `inverse_sqrt` keeps falling.

The papers use two forms of linear warm-up, which `warmup_ahead` chooses in every schedule:

* False: start + (max - start) * t / warmup_steps. Step 0 uses the start value itself, and the peak is first used by
  step `warmup_steps` (original code of Gu et al. 2023 and 2024; Ott et al. 2018). The default of `linear`, `cosine`,
  `cosine_step` and `inverse_sqrt`.
* True: start + (max - start) * (t + 1) / warmup_steps. No step uses the start value, and the last step of the warm-up
  already uses the peak (original code of Assran et al. 2019). The default of `step` and `constant`.

Some originals hold the learning rate for many steps of the warm-up; `staircase` makes that of any schedule.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

from resync.errors import UserError

__all__ = ["Schedule", "constant", "cosine", "cosine_step", "inverse_sqrt", "linear", "staircase", "step"]

Schedule = Callable[[int], float]


def constant(
    lr: float, total_steps: int = 1, warmup_steps: int = 0, warmup_start: float = 0.0, warmup_ahead: bool = True
) -> Schedule:
    """`lr` in every step after an optional warm-up like that of `step`; `total_steps` only bounds the warm-up."""
    return step(lr, [], total_steps, warmup_steps, warmup_start, warmup_ahead)


def step(
    max_lr: float,
    decays: Sequence[tuple[int, float]],
    total_steps: int,
    warmup_steps: int = 0,
    warmup_start: float = 0.0,
    warmup_ahead: bool = True,
) -> Schedule:
    """`max_lr` times the product of the factors whose step has been reached (Assran et al. 2019).

    Args:
        max_lr: learning rate between the warm-up and the first decay (for SGP: 0.1 * total batch / 256).
        decays: pairs (step, factor); factors accumulate, so 0.1 after 30, 60 and 80 epochs ends at a thousandth of
            `max_lr`. Decays within the warm-up take effect at its end.
        total_steps: steps of the whole training, T.
        warmup_steps: steps of the linear warm-up, fewer than T.
        warmup_start: initial value of the warm-up, for SGP the learning rate for 256 samples (0.1); unless it is
            below `max_lr` there is no warm-up, as in the original.
        warmup_ahead: whether step t of the warm-up is at (t + 1) / W of the way and not at t / W.

    Raises ValueError if a value is out of range, as all functions here do.
    """
    _check_range(max_lr, total_steps, warmup_steps, warmup_start)
    for at, factor in decays:
        if at < 0 or not 0 < factor < math.inf:
            raise UserError(f"decay ({at}, {factor}): expected a step >= 0 and a factor > 0")
    after = partial(_step_lr, float(max_lr), tuple((at, float(factor)) for at, factor in decays))
    rising = warmup_steps if warmup_start < max_lr else 0
    return partial(_warmed_up_lr, after, float(max_lr), rising, float(warmup_start), warmup_ahead)


def linear(
    max_lr: float, min_lr: float, total_steps: int, warmup_steps: int = 0, warmup_start: float | None = None,
    warmup_ahead: bool = False,
) -> Schedule:  # fmt: skip
    """Like `cosine`, with a straight line in place of the half cosine; same arguments."""
    return _decay(_straight, max_lr, min_lr, total_steps, warmup_steps, warmup_start, warmup_ahead)


def cosine(
    max_lr: float, min_lr: float, total_steps: int, warmup_steps: int = 0, warmup_start: float | None = None,
    warmup_ahead: bool = False,
) -> Schedule:  # fmt: skip
    """Half a cosine from `max_lr` at the end of the warm-up down to `min_lr` at `total_steps` (Gu et al. 2024).

    Step `warmup_steps` is the first with the peak, and step `total_steps` would have `min_lr`, from which the warm-up
    rises if `warmup_start` is omitted. The other arguments are those of `step`.
    """
    return _decay(_half_cosine, max_lr, min_lr, total_steps, warmup_steps, warmup_start, warmup_ahead)


def cosine_step(
    max_lr: float,
    min_lr: float,
    total_steps: int,
    warmup_steps: int = 0,
    warmup_start: float | None = None,
    base: float = 2.0,
    warmup_ahead: bool = False,
) -> Schedule:
    """`cosine`, rounded to the nearest power of `base` after the warm-up (Gu et al. 2024, `cosine_step`).

    The warm-up ends below `max_lr`, and the first step after it jumps to the power nearest to `max_lr`. The other
    arguments are those of `cosine`, and `min_lr` must be above 0, which has no nearest power.
    """
    if not min_lr > 0 or not base > 1:
        raise UserError(f"min_lr is {min_lr} and base is {base}, expected min_lr > 0 and base > 1")
    smooth = cosine(max_lr, min_lr, total_steps, warmup_steps, warmup_start, warmup_ahead)
    return partial(_rounded_lr, smooth, warmup_steps, float(base))


def inverse_sqrt(
    max_lr: float, total_steps: int, warmup_steps: int, warmup_start: float = 0.0, warmup_ahead: bool = False
) -> Schedule:
    """`max_lr` * sqrt(`warmup_steps` / step) after the warm-up (Vaswani et al. 2017, section 5.3; Ott et al. 2018).

    The peak is first used by step `warmup_steps`, of which there is at least 1; `total_steps` only bounds the warm-up.
    The other arguments are those of `step`.
    """
    _check_range(max_lr, total_steps, warmup_steps, warmup_start)
    if not warmup_steps:
        raise UserError("warmup_steps is 0, expected at least 1: the decay is measured in units of it")
    after = partial(_inverse_sqrt_lr, float(max_lr), warmup_steps)
    return partial(_warmed_up_lr, after, float(max_lr), warmup_steps, float(warmup_start), warmup_ahead)


def staircase(schedule: Schedule, warmup_steps: int, every: int, steps_per_epoch: int) -> Schedule:
    """`schedule`, whose learning rate changes in the warm-up only after `every` steps, counted from the epoch's start.

    The original code of Assran et al. 2019 sets it in the iterations 0, 100, 200, ... of an epoch; with
    `every` = `steps_per_epoch` it is set once per epoch.
    """
    if every < 1 or steps_per_epoch < 1:
        raise UserError(f"every is {every} and steps_per_epoch is {steps_per_epoch}, expected >= 1")
    return partial(_staircase_lr, schedule, warmup_steps, every, steps_per_epoch)


def _staircase_lr(smooth: Schedule, warmup_steps: int, every: int, steps_per_epoch: int, step: int) -> float:
    return smooth(step - step % steps_per_epoch % every if step < warmup_steps else step)


def _warmed_up_lr(
    after: Schedule, max_lr: float, warmup_steps: int, warmup_start: float, warmup_ahead: bool, step: int
) -> float:
    if step >= warmup_steps:
        return after(step)
    return float(warmup_start + (max_lr - warmup_start) * (step + warmup_ahead) / warmup_steps)


def _inverse_sqrt_lr(max_lr: float, warmup_steps: int, step: int) -> float:
    return max_lr * math.sqrt(warmup_steps / step)


def _rounded_lr(smooth: Schedule, warmup_steps: int, base: float, step: int) -> float:
    lr = smooth(step)
    return lr if step < warmup_steps else float(base ** round(math.log(lr, base)))


def _step_lr(max_lr: float, decays: tuple[tuple[int, float], ...], step: int) -> float:
    return max_lr * math.prod(factor for at, factor in decays if step >= at)


def _decay(
    shape: Callable[[float], float],
    max_lr: float,
    min_lr: float,
    total_steps: int,
    warmup_steps: int,
    warmup_start: float | None,
    warmup_ahead: bool,
) -> Schedule:
    start = min_lr if warmup_start is None else warmup_start
    _check_range(max_lr, total_steps, warmup_steps, start)
    if not 0 <= min_lr <= max_lr:
        raise UserError(f"min_lr is {min_lr}, expected between 0 and max_lr = {max_lr}")
    after = partial(_decay_lr, shape, float(max_lr), float(min_lr), warmup_steps, total_steps)
    return partial(_warmed_up_lr, after, float(max_lr), warmup_steps, float(start), warmup_ahead)


def _decay_lr(shape: Callable[[float], float], max_lr: float, min_lr: float, first: int, last: int, step: int) -> float:
    progress = min((step - first) / (last - first), 1.0)
    return float(min_lr + (max_lr - min_lr) * shape(progress))


def _straight(progress: float) -> float:
    return 1.0 - progress


def _half_cosine(progress: float) -> float:
    return (1.0 + math.cos(math.pi * progress)) / 2.0


def _check_range(max_lr: float, total_steps: int, warmup_steps: int, warmup_start: float) -> None:
    if not 0 < max_lr < math.inf:
        raise UserError(f"the learning rate is {max_lr}, expected a finite number > 0")
    if total_steps < 1:
        raise UserError(f"total_steps is {total_steps}, expected >= 1")
    if not 0 <= warmup_steps < total_steps:
        raise UserError(f"warmup_steps is {warmup_steps}, expected 0..{total_steps - 1}, below total_steps")
    if not 0 <= warmup_start < math.inf:
        raise UserError(f"warmup_start is {warmup_start}, expected a finite number >= 0")
