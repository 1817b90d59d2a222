"""Effects over seeds: by how much one series is better than another, and how sure that is.

An effect is always counted so that positive is better. Two one-sided t tests at the claimed level decide: the claim
holds where an effect below the claimed one is rejected, it fails where an effect of at least the claimed one is. The
bootstrap interval beside them shows how far the seeds spread; of few seeds it is too narrow to decide anything.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from resync.results.evidence import Evidence

RESAMPLES = 9999
SEED = 0
ROUNDING = 1e-9
"""Differences below this are of the arithmetic, not of the runs."""


@dataclass(frozen=True)
class Effect:
    """The effect between two series.

    `p_less` is the p-value of the null hypothesis that it is smaller than `at_least`, `p_more` of the null hypothesis
    that it is at least that; None where nothing is tested. `low` and `high` bound the two-sided bootstrap interval.
    `n` counts the seeds of both sides.
    """

    better: str
    than: str
    difference: float
    low: float | None = None
    high: float | None = None
    p_less: float | None = None
    p_more: float | None = None
    n: tuple[int, int] | None = None


def welch(better: Evidence, than: Evidence, at_least: float) -> tuple[float, float]:
    """(p_less, p_more) of the difference of two means with variances of their own; at least 2 values each."""
    error, degrees = welch_error(better.std, better.n, than.std, than.n)
    return _p_values(better.mean - than.mean - at_least, error, degrees)


def welch_error(std: float, n: int, other_std: float, other_n: int) -> tuple[float, float]:
    """The standard error of the difference of two means, and its degrees of freedom (Welch-Satterthwaite)."""
    own, other = std**2 / n, other_std**2 / other_n
    if own + other == 0:
        return 0.0, 1.0
    share = own / (own + other)  # in shares of the sum: squares of tiny variances would underflow
    return math.sqrt(own + other), 1 / (share**2 / (n - 1) + (1 - share) ** 2 / (other_n - 1))


def paired(differences: Evidence, at_least: float) -> tuple[float, float]:
    """(p_less, p_more) of the mean of differences at common seeds; at least 2 of them."""
    error = differences.std / math.sqrt(differences.n)
    return _p_values(differences.mean - at_least, error, differences.n - 1)


def interval(samples: Sequence[Evidence], confidence: float) -> tuple[float, float]:
    """The percentile bootstrap interval of the first sample's mean minus that of the second, if there is one.

    Each sample is resampled on its own, always with the same random numbers.
    """
    random = np.random.default_rng(SEED)
    means = [
        np.asarray(sample.values)[random.integers(0, sample.n, (RESAMPLES, sample.n))].mean(axis=1)
        for sample in samples
    ]
    differences = means[0] - means[1] if len(means) == 2 else means[0]
    low, high = np.quantile(differences, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _p_values(excess: float, error: float, degrees: float) -> tuple[float, float]:
    if error <= ROUNDING:  # seeds that all agree leave no doubt
        return (0.0, 1.0) if excess >= -ROUNDING else (1.0, 0.0)
    return float(stdtr(degrees, -excess / error)), float(stdtr(degrees, excess / error))
