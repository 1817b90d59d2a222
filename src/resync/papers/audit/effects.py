"""Effects over seeds: by how much one series is better than another, and how certain that is.

The sign of an effect is chosen so that positive is better. Two one-sided t tests at the claimed level decide: the claim
agrees if an effect below the claimed one is rejected. If one of at least the claimed size is, the effect is smaller
than published, or disagrees if a third of the published effect is rejected too. Where a training diverged, it has the
worst rank. Seeds that all agree are no certainty: accuracies are multiples of one image, so that a few may tie by
chance, and a defect may make them one training. No test is possible then, and nothing is rejected.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import numpy as np
from pydantic import BeforeValidator
from scipy.special import betaincinv, nctdtr, stdtr, stdtrit

from resync.papers.audit.verdicts import quantile, welch_error
from resync.papers.paper.claim import LEAST_SEEDS
from resync.runs.results.seed_values import SeedValues
from resync.workers.formulas import rounding

ROUNDING = 1e-9
"""Differences below this are rounding errors, not differences between runs."""
FARTHEST = 1e4
"""Standard errors from the null hypothesis beyond which no test is in doubt."""
SHARES = 200
"""Quantiles over which the power of Welch's test is averaged."""

Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""A number; null in JSON stands for NaN."""


@dataclass(frozen=True)
class Effect:
    """The effect between two series.

    `p_less` is the p-value of the null hypothesis that the effect is smaller than `at_least`, `p_more` that of the null
    hypothesis that it is at least as large, `p_any` that it is at least a third of the published one, or 0 if that is
    unknown, and never more than `at_least`; None if nothing is tested. `low` and `high` bound the interval of effects
    that none of the one-sided tests rejects, None if there is none. `n` holds the number of seeds of each side.
    """

    better: str
    than: str
    difference: Number
    low: float | None = None
    high: float | None = None
    p_less: float | None = None
    p_more: float | None = None
    p_any: float | None = None
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
    return Estimate(rounding.difference(better.mean, than.mean), error, degrees)


def paired(differences: SeedValues) -> Estimate:
    """The mean difference at common seeds; needs at least 2 of them."""
    return Estimate(differences.mean, differences.std / math.sqrt(differences.n), differences.n - 1)


def ranks(
    better: SeedValues, than: SeedValues, at_least: float, least: float
) -> tuple[float, None, None, float, float, float]:
    """The difference of the medians, no interval, and `p_less`, `p_more` and `p_any` of Mann and Whitney's test.

    A training that diverged is minus infinity. The claimed effect is subtracted from the values that should be larger.
    """
    from scipy.stats import mannwhitneyu  # only here: the import is slow

    def p(shift: float, alternative: str) -> float:
        shifted = [value - shift for value in better.values]
        return float(mannwhitneyu(shifted, than.values, alternative=alternative, method="exact").pvalue)

    medians = [median(side.values) for side in (better, than)]
    difference = rounding.difference(*medians) if all(map(math.isfinite, medians)) else math.nan
    return difference, None, None, p(at_least, "greater"), p(at_least, "less"), p(least, "less")


def pooled(compared: Iterable[SeedValues]) -> tuple[float, int]:
    """The standard deviation over the seeds of some samples, with its degrees of freedom; NaN without any."""
    known = [sample for sample in compared if sample.n > 1]
    degrees = sum(sample.n - 1 for sample in known)
    variance = math.fsum((sample.n - 1) * sample.std**2 for sample in known) / degrees if degrees else math.nan
    return math.sqrt(variance), degrees


def power(test: str, effect: float, std: float, seeds: tuple[int, int], level: float) -> float:
    """Probability that a one-sided test rejects a null hypothesis from which the true effect differs by `effect`.

    `std`, above 0, is that of the seeds of both series, or of the differences at common seeds for the paired test. It
    follows from the noncentral t distribution (Cohen 1988, section 2.2). Welch's test of two series with the same
    deviation does not know that they have the same: its power is the mean over what the two samples may say of their
    deviations; that of Student's test is larger by 0.02 with 5 seeds and 0.07 with 3.
    """
    first, second = seeds
    if min(seeds) < LEAST_SEEDS:
        return 0.0
    if test == "paired":
        distance = np.clip(effect / std * math.sqrt(first), -FARTHEST, FARTHEST)
        return float(1 - nctdtr(first - 1, distance, stdtrit(first - 1, 1 - level)))
    # Given the share of the first sample in the sum of squares, which is independent of everything else, Welch's
    # statistic is Student's times a known factor, and its degrees of freedom are known.
    shares = betaincinv((first - 1) / 2, (second - 1) / 2, (np.arange(SHARES) + 0.5) / SHARES)
    variances = shares / (first - 1) / first, (1 - shares) / (second - 1) / second
    total, both = variances[0] + variances[1], first + second - 2
    degrees = total**2 / (variances[0] ** 2 / (first - 1) + variances[1] ** 2 / (second - 1))
    unit = 1 / first + 1 / second
    bounds = stdtrit(degrees, 1 - level) * np.sqrt(both * total / unit)
    distance = np.clip(effect / std / math.sqrt(unit), -FARTHEST, FARTHEST)
    return float((1 - nctdtr(both, distance, bounds)).mean())


def p_text(value: float) -> str:
    """A p-value, `p = 0.012`; one that would round to 0 is `p < 0.001`."""
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"
