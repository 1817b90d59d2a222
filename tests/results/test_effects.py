"""The statistics of claims: golden numbers and general properties."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resync.audit.effects import interval, paired, welch
from resync.results.evidence import Evidence

seeds = st.lists(st.floats(70, 90), min_size=2, max_size=6, unique_by=lambda value: round(value, 3))
margins = st.floats(-2, 2)


def test_golden_numbers():
    """Three seeds per side, with the values of scipy.stats.ttest_ind: t = 3.2216, 3.62 degrees of freedom."""
    better, than = Evidence.of([80.93, 80.98, 81.03]), Evidence.of([79.25, 79.32, 79.39])
    p_less, p_more = welch(better, than, 1.5)
    assert p_less == pytest.approx(0.018594518, abs=1e-9)
    assert p_more == pytest.approx(1 - p_less)
    p_less, p_more = paired(Evidence.of([1.5, 1.7, 1.9]), 1.5)  # t = sqrt(3) at 2 degrees of freedom
    assert p_less == pytest.approx(0.112701665, abs=1e-9)
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
