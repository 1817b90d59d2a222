"""The statistics of claims: golden numbers and general properties."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from resync.papers.audit.effects import paired, welch
from resync.runs.results.seed_values import SeedValues

seeds = st.lists(st.floats(70, 90), min_size=2, max_size=6, unique_by=lambda value: round(value, 3))
margins = st.floats(-2, 2)


def test_golden_numbers():
    """Three seeds per side, with the values of scipy.stats.ttest_ind: t = 3.2216, 3.62 degrees of freedom."""
    better, than = SeedValues.of([80.93, 80.98, 81.03]), SeedValues.of([79.25, 79.32, 79.39])
    p_less, p_more = welch(better, than).p_values(1.5)
    assert p_less == pytest.approx(0.018594518, abs=1e-9)
    assert p_more == pytest.approx(1 - p_less)
    p_less, p_more = paired(SeedValues.of([1.5, 1.7, 1.9])).p_values(1.5)  # t = sqrt(3) at 2 degrees of freedom
    assert p_less == pytest.approx(0.112701665, abs=1e-9)
    assert p_more == pytest.approx(1 - p_less)


@settings(max_examples=20)
@given(seeds, seeds, margins)
def test_sides_can_be_swapped(a: list[float], b: list[float], margin: float):
    first, second = SeedValues.of(a), SeedValues.of(b)
    p_less, p_more = welch(first, second).p_values(margin)
    assert welch(second, first).p_values(-margin) == pytest.approx((p_more, p_less))


@settings(max_examples=20)
@given(seeds, seeds)
def test_intervals_are_those_of_the_tests(a: list[float], b: list[float]):
    """As scipy.stats has them; a null hypothesis at their ends has a p-value of half the level."""
    for estimate, expected in (
        (welch(SeedValues.of(a), SeedValues.of(b)), stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.9)),
        (paired(SeedValues.of(a)), stats.ttest_1samp(a, 0.0).confidence_interval(0.9)),
    ):
        low, high = estimate.interval(0.9)
        assert (low, high) == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-6)
        assert (estimate.p_values(low)[0], estimate.p_values(high)[1]) == pytest.approx((0.05, 0.05))


@pytest.mark.parametrize("at_least", [-0.5, 0.5, 1.0, 1.1])
def test_seeds_that_all_tie_are_no_certainty(at_least: float):
    for tie in (welch(SeedValues.of([81.1] * 3), SeedValues.of([80.1] * 3)), paired(SeedValues.of([81.1 - 80.1] * 3))):
        assert tie.p_values(at_least) == (1.0, 1.0)
        assert tie.interval(0.95) == (None, None)
