"""Effects over seeds: by how much one series is better than another, and how certain that is.

The sign of an effect is chosen so that positive is better. Two one-sided t tests at the claimed level decide: the claim
holds if an effect below the claimed one is rejected, and fails if an effect of at least the claimed one is rejected.
The bootstrap interval only shows the spread of the seeds; with few seeds it is too narrow to decide anything.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from resync.results.evidence import Evidence

RESAMPLES = 9999
SEED = 0
ROUNDING = 1e-9
"""Differences below this are rounding errors, not differences between runs."""


@dataclass(frozen=True)
class Effect:
    """The effect between two series.

    `p_less` is the p-value of the null hypothesis that the effect is smaller than `at_least`, `p_more` that of the null
    hypothesis that it is at least as large; None if nothing is tested. `low` and `high` bound the two-sided bootstrap
    interval. `n` holds the number of seeds of each side.
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
    """(p_less, p_more) of the difference of two means with unequal variances; needs at least 2 values each."""
    error = math.hypot(better.std / math.sqrt(better.n), than.std / math.sqrt(than.n))
    if error <= ROUNDING:
        return _without_doubt(better.mean - than.mean - at_least)
    shifted = np.asarray(better.values) - at_least
    test = partial(stats.ttest_ind, shifted, than.values, equal_var=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one side may have zero spread, the other one has some
        return float(test(alternative="greater").pvalue), float(test(alternative="less").pvalue)


def paired(differences: Evidence, at_least: float) -> tuple[float, float]:
    """(p_less, p_more) of the mean difference at common seeds; needs at least 2 of them."""
    if differences.std / math.sqrt(differences.n) <= ROUNDING:
        return _without_doubt(differences.mean - at_least)
    test = partial(stats.ttest_1samp, differences.values, at_least)
    return float(test(alternative="greater").pvalue), float(test(alternative="less").pvalue)


def interval(samples: Sequence[Evidence], confidence: float) -> tuple[float, float]:
    """Percentile bootstrap interval of the first sample's mean, minus the mean of the second sample if there is one.

    The samples are resampled independently of each other, always with the same random numbers.
    """
    bounds = stats.bootstrap(
        [sample.values for sample in samples],
        _difference_of_means,
        n_resamples=RESAMPLES,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return float(bounds.low), float(bounds.high)


def _difference_of_means(*samples: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    first, *others = (np.mean(sample, axis=axis) for sample in samples)
    return first - sum(others)


def _without_doubt(excess: float) -> tuple[float, float]:
    """The p-values if all seeds agree exactly, for which no test is defined."""
    return (0.0, 1.0) if excess >= -ROUNDING else (1.0, 0.0)
