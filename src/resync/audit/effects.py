"""Effects over seeds: by how much one series is better than another, and how certain that is.

The sign of an effect is chosen so that positive is better. Two one-sided t tests at the claimed level decide: the claim
holds if an effect below the claimed one is rejected, and fails if an effect of at least the claimed one is rejected.
Seeds that all agree are no certainty: accuracies are multiples of one image, so that a few may tie by chance, and a
defect may make them one training. No test is possible then, and nothing is rejected.
"""

import math
from dataclasses import dataclass

from scipy.special import stdtr

from resync.audit.verdicts import quantile, welch_error
from resync.results.seed_values import SeedValues

ROUNDING = 1e-9
"""Differences below this are rounding errors, not differences between runs."""


@dataclass(frozen=True)
class Effect:
    """The effect between two series.

    `p_less` is the p-value of the null hypothesis that the effect is smaller than `at_least`, `p_more` that of the null
    hypothesis that it is at least as large; None if nothing is tested. `low` and `high` bound the two-sided confidence
    interval of the same test, None if there is none. `n` holds the number of seeds of each side.
    """

    better: str
    than: str
    difference: float
    low: float | None = None
    high: float | None = None
    p_less: float | None = None
    p_more: float | None = None
    n: tuple[int, int] | None = None


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, or the difference of two, with its standard error and the degrees of freedom of that."""

    value: float
    error: float
    degrees: float

    @property
    def is_tie(self) -> bool:
        return self.error <= ROUNDING

    def p_values(self, at_least: float) -> tuple[float, float]:
        """(p_less, p_more) of the one-sided t tests whether the true value is smaller, or at least as large.

        A tie rejects neither.
        """
        if self.is_tie:
            return 1.0, 1.0
        t = (self.value - at_least) / self.error
        return float(stdtr(self.degrees, -t)), float(stdtr(self.degrees, t))

    def interval(self, confidence: float) -> tuple[float, float] | tuple[None, None]:
        """Student's two-sided interval: it holds what neither of the two tests rejects at half the level.

        A tie has none.
        """
        if self.is_tie:
            return None, None
        half = quantile(self.degrees, confidence) * self.error
        return self.value - half, self.value + half


def welch(better: SeedValues, than: SeedValues) -> Estimate:
    """The difference of two means with unequal variances (Welch 1947); needs at least 2 values each."""
    error, degrees = welch_error(*((side.std**2 / side.n, side.n - 1) for side in (better, than)))
    return Estimate(better.mean - than.mean, error, degrees)


def paired(differences: SeedValues) -> Estimate:
    """The mean difference at common seeds; needs at least 2 of them."""
    return Estimate(differences.mean, differences.std / math.sqrt(differences.n), differences.n - 1)


def p_text(value: float) -> str:
    """A p-value, `p = 0.012`; one that would round to 0 is `p < 0.001`."""
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"
