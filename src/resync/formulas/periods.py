"""Periods H: how many local steps a round has, as a pure function of the step and its learning rate.

A period rule only answers how long a round that starts now wants to be. `round_length` is the one place that
knows the exact loop around it: warm-up, rounding down and the cut at the end of training. Training asks it at
the start of every round and planning asks it for all rounds (`rounds`), so the planned volume is the trained
one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Period(Protocol):
    """A rule for H. Further rules (phases, a cap around another rule) need no more than this method."""

    def local_steps(self, lr: float, step: int, warming_up: bool) -> float:
        """Return the wished length of a round that starts at `step`, where the learning rate is `lr`.

        The wish may have a fraction or be infinite; `round_length` rounds it down and cuts it.
        """
        ...


@dataclass(frozen=True)
class Constant:
    """The same `h` in every round, as in Local SGD; h = 1 averages after every step."""

    h: int

    def __post_init__(self) -> None:
        """Raise ValueError if `h` is not an integer >= 1."""
        _check_steps("h", self.h)

    def local_steps(self, lr: float, step: int, warming_up: bool) -> int:
        """Return h."""
        return self.h


@dataclass(frozen=True)
class PowerRule:
    """H = max(h_base, floor((alpha / lr) ** power)): QSR and its relatives (Gu et al. 2024).

    Attributes:
        alpha: growth coefficient, in units of the learning rate.
        power: 2 is the quadratic rule (QSR), 1 the linear rule H = beta / lr, 3 the cubic rule. It has no
            default, because a forgotten power silently ran the linear rule in the original.
        h_base: smallest H.
        h_warmup: H of every round that starts in the warm-up, where the small learning rate would ask for
            very long rounds; `h_base` if left out.
        h_max: largest H; no limit if left out.
    """

    alpha: float
    power: float
    h_base: int
    h_warmup: int | None = None
    h_max: int | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if a value is out of range."""
        for name, value in (("alpha", self.alpha), ("power", self.power)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}, expected a number > 0 (for a constant H use Constant)")
        _check_steps("h_base", self.h_base)
        if self.h_warmup is not None:
            _check_steps("h_warmup", self.h_warmup)
        if self.h_max is not None:
            _check_steps("h_max", self.h_max)
            if self.h_max < self.h_base:
                raise ValueError(f"h_max is {self.h_max}, expected >= h_base = {self.h_base}")

    def local_steps(self, lr: float, step: int, warming_up: bool) -> float:
        """Return H before rounding down; infinite where `lr` is 0: workers that stand still cannot drift."""
        if warming_up:
            return self.h_base if self.h_warmup is None else self.h_warmup
        if not lr >= 0:
            raise ValueError(f"the learning rate of step {step} is {lr}, expected >= 0")
        try:
            wish = max(self.h_base, (self.alpha / lr) ** self.power)
        except (ZeroDivisionError, OverflowError):
            wish = math.inf
        return wish if self.h_max is None else min(wish, self.h_max)


@dataclass(frozen=True)
class Phases:
    """Another rule from each given step on: post-local SGD (Lin et al. 2020) and SWAP (Gupta et al. 2020).

    Post-local SGD is `Phases(((0, Constant(1)), (switch, Constant(h))))`. SWAP averages every h steps until the switch
    and then once, at the end: `Phases(((0, Constant(h)), (switch, None)))`. A round ends where a phase does.

    Attributes:
        phases: (first step, rule) in ascending order, from step 0 on; None averages at the end of training only.
    """

    phases: tuple[tuple[int, Period | None], ...]

    def __post_init__(self) -> None:
        """Raise ValueError for phases that are not in order."""
        firsts = [first for first, _ in self.phases]
        if not firsts or firsts[0] != 0 or firsts != sorted(set(firsts)):
            raise ValueError(f"phases start at steps {firsts}, expected ascending steps, from 0 on")

    def local_steps(self, lr: float, step: int, warming_up: bool) -> float:
        """Return the wish of the phase's rule, cut at the end of the phase."""
        current = max(index for index, (first, _) in enumerate(self.phases) if first <= step)
        end = next((first for first, _ in self.phases[current + 1 :]), math.inf)
        rule = self.phases[current][1]
        wish = math.inf if rule is None else rule.local_steps(lr, step, warming_up)
        return min(wish, end - step)


def round_length(period: Period, lr_value: float, step: int, total_steps: float, warmup_steps: int) -> int:
    """Return H of the round whose first step is `step`; it stays fixed although the learning rate moves on.

    A round that starts in the warm-up may straddle its end. The last round is cut so that its averaging falls
    on step `total_steps`. H is never below 1, so steps beyond `total_steps` are averaged one by one.
    Source: original code of Gu et al. 2024; unlike there, a constant H is cut as well.

    Args:
        period: the rule.
        lr_value: learning rate of `step`.
        step: first step of the round, 0-based.
        total_steps: steps of the whole training, T.
        warmup_steps: steps of the warm-up.
    """
    wish = period.local_steps(lr=lr_value, step=step, warming_up=step < warmup_steps)
    length = min(wish, total_steps - step)
    if length == math.inf:
        raise ValueError(f"the round that starts at step {step} has no end: give total_steps or h_max")
    return max(1, math.floor(length))


def rounds(period: Period, lr: Callable[[int], float], total_steps: int, warmup_steps: int) -> list[int]:
    """Return H of every round of a training, with sum `total_steps`; `lr` is only asked at their starts."""
    lengths: list[int] = []
    step = 0
    while step < total_steps:
        lengths.append(round_length(period, lr(step), step, total_steps, warmup_steps))
        step += lengths[-1]
    return lengths


def _check_steps(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}, expected an integer >= 1")
