"""The statistics of claims against scipy.stats, and what must hold of any numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from resync.audit.effects import RESAMPLES, SEED, interval, paired, welch
from resync.results.evidence import Evidence

seeds = st.lists(st.floats(70, 90), min_size=2, max_size=6, unique_by=lambda value: round(value, 3))
margins = st.floats(-2, 2)


@given(seeds, seeds, margins)
def test_welch_is_that_of_scipy(better: list[float], than: list[float], at_least: float):
    shifted = np.asarray(better) - at_least
    less = stats.ttest_ind(shifted, than, equal_var=False, alternative="greater").pvalue
    more = stats.ttest_ind(shifted, than, equal_var=False, alternative="less").pvalue
    assert welch(Evidence.of(better), Evidence.of(than), at_least) == pytest.approx((less, more))


@given(seeds, margins)
def test_paired_is_that_of_scipy(differences: list[float], at_least: float):
    less = stats.ttest_1samp(differences, at_least, alternative="greater").pvalue
    more = stats.ttest_1samp(differences, at_least, alternative="less").pvalue
    assert paired(Evidence.of(differences), at_least) == pytest.approx((less, more))


@pytest.mark.parametrize("samples", [([80.9, 81.0, 81.3], [79.9, 80.4]), ([0.4, 0.5, 0.9, 0.2],)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_the_interval_is_that_of_scipys_bootstrap(samples: tuple[list[float], ...], confidence: float):
    def difference(*parts, axis):
        means = [np.mean(part, axis=axis) for part in parts]
        return means[0] - means[1] if len(means) == 2 else means[0]

    bootstrap = stats.bootstrap(
        samples, difference, n_resamples=RESAMPLES, confidence_level=confidence, method="percentile",
        rng=np.random.default_rng(SEED),
    )  # fmt: skip
    assert interval([Evidence.of(sample) for sample in samples], confidence) == pytest.approx(
        tuple(bootstrap.confidence_interval)
    )


def test_golden_numbers():
    """Three seeds a side, as scipy.stats.ttest_ind gives them: t = 3.2216, 3.62 degrees of freedom."""
    better, than = Evidence.of([80.93, 80.98, 81.03]), Evidence.of([79.25, 79.32, 79.39])
    p_less, p_more = welch(better, than, 1.5)
    assert p_less == pytest.approx(0.018594518, abs=1e-9)
    assert p_more == pytest.approx(1 - p_less)


@settings(max_examples=20)
@given(seeds, seeds, margins)
def test_sides_can_be_swapped_and_the_interval_holds_the_difference(a: list[float], b: list[float], margin: float):
    first, second = Evidence.of(a), Evidence.of(b)
    p_less, p_more = welch(first, second, margin)
    assert welch(second, first, -margin) == pytest.approx((p_more, p_less))
    low, high = interval([first, second], 0.95)
    assert low <= high
    assert min(a) - max(b) <= low
    assert high <= max(a) - min(b)


@pytest.mark.parametrize(("at_least", "p"), [(0.5, (0.0, 1.0)), (1.0, (0.0, 1.0)), (1.1, (1.0, 0.0))])
def test_seeds_that_agree_leave_no_doubt(at_least: float, p: tuple[float, float]):
    assert welch(Evidence.of([81.1] * 3), Evidence.of([80.1] * 3), at_least) == p
    assert paired(Evidence.of([81.1 - 80.1] * 3), at_least) == p
