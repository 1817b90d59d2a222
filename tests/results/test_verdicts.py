import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from resync.papers.audit.verdicts import (
    ARITHMETIC,
    FAILURES,
    REASONS,
    VERDICTS,
    Target,
    Verdict,
    compare,
    half_width,
    planned,
)
from resync.runs.results.seed_values import SeedValues

EXACT = Target(80.0, better=1, declared=0.3)
SPREAD = Target(80.0, std=0.05, n=3, better=1, default=0.3)
DEFAULT = Target(80.0, better=1, default=0.3)


@pytest.mark.parametrize(
    ("values", "target", "word"),
    [
        ([79.95, 80.0, 80.05], EXACT, "agrees"),
        ([79.95, 80.0, 80.05], DEFAULT, "agrees"),
        ([81.0, 81.05, 81.1], EXACT, "open"),
        ([79.0, 79.05, 79.1], EXACT, "disagrees"),
        ([79.0, 79.05, 79.1], Target(80.0, better=-1, declared=0.3), "open"),
        ([79.0, 79.05, 79.1], Target(80.0, declared=0.3), "disagrees"),
        ([81.0, 81.05, 81.1], Target(80.0, declared=0.3), "disagrees"),
        ([79.6, 79.7, 79.8], EXACT, "open"),
        ([78.0, 80.0, 82.0], EXACT, "open"),
        ([79.95, 80.0, 80.05], SPREAD, "agrees"),
        ([79.7, 79.75, 79.8], SPREAD, "disagrees"),
        ([80.2, 80.25, 80.3], SPREAD, "open"),
        ([79.0, 80.0, 81.0], SPREAD, "open"),  # noise is no agreement
        ([80.0], SPREAD, "open"),  # one seed borrows the published deviation
        ([80.0], Target(80.0, std=0.05, n=3, declared=0.3), "open"),
        ([80.0], EXACT, "open"),  # one seed: its deviation is assumed, as a quarter of the tolerance
        ([80.09], EXACT, "open"),
        ([80.0], Target(80.0, declared=0.3, least_seeds=1), "agrees"),  # nothing was trained
        ([80.6], EXACT, "open"),
        ([79.4], EXACT, "open"),
        ([80.0, 80.0, 80.0], EXACT, "agrees"),
        ([80.0, 80.0], Target(80.0, std=0.0, n=3, default=0.3), "agrees"),
        ([80.0, math.nan, 80.0], EXACT, "disagrees"),
        ([], EXACT, "disagrees"),
        ([80.0, 80.0], Target(80.0), "untested"),
        ([80.0, 80.1], Target(80.0, std=0.05, n=None, default=0.3), "agrees"),
        ([79.6, 80.4], Target(80.0, default=0.3), "open"),  # the two seeds contradict the assumed deviation
        ([5.2, 5.3], Target(5.0, default=0.1, bound="lower"), "agrees"),
        ([9.0, 9.0], Target(5.0, default=0.1, bound="lower"), "agrees"),
        ([4.7, 4.8], Target(5.0, default=0.1, bound="lower"), "disagrees"),
        ([5.0, 5.01], Target(5.0, default=0.1, bound="lower"), "open"),
        ([1.0], Target(1.2, default=0.1, bound="upper"), "open"),
        ([1.0, 1.0], Target(1.2, default=0.1, bound="upper"), "agrees"),
        ([1.5], Target(1.2, default=0.1, bound="upper"), "open"),  # one seed decides nothing
        ([1.5, 1.5], Target(1.2, default=0.1, bound="upper"), "disagrees"),
        ([80.6], replace(EXACT, least_seeds=1), "open"),  # nothing was trained
        # One draw, beside the interval of another training of ours: 80 ± 4.30 * 0.1 * sqrt(4 / 3).
        ([79.9, 80.0, 80.1], Target(80.45, n=1, default=0.3, alternative=80.6), "agrees"),
        ([79.9, 80.0, 80.1], Target(80.45, n=1, default=0.3, alternative=80.4), "open"),  # it holds both
        ([79.9, 80.0, 80.1], Target(80.45, n=1, default=0.6), "open"),  # told from nothing
        ([79.9, 80.0, 80.1], Target(80.55, n=1, default=0.3, better=1), "disagrees"),
        ([79.9, 80.0, 80.1], Target(80.55, n=1, declared=0.3, better=1), "disagrees"),
    ],
)
def test_verdicts_of_seeds(values: list[float], target: Target, word: str):
    verdict = compare(target, SeedValues.of(values))
    assert verdict.word == word, verdict.reason


@pytest.mark.parametrize(
    ("computed", "target", "word"),
    [
        (10.375, Target(10.4), "untested"),  # the golden case of QSR, printed with one decimal
        (39.731, Target(39.7), "untested"),
        (39.76, Target(39.7), "disagrees"),
        (25.05, Target(25.0), "untested"),  # exactly half a unit, in decimals
        (25.3, Target(25.0), "disagrees"),
        (25.3, Target(25.0, declared=0.5), "untested"),
        (math.nan, Target(25.0), "disagrees"),
    ],
)
def test_verdicts_of_planned_numbers(computed: float, target: Target, word: str):
    verdict = planned(computed, target)
    assert (verdict.word, verdict.because) == (word, ARITHMETIC)


def test_reasons_say_which_tolerance_and_how_many_seeds():
    because = Target(80.0, declared=0.3, reason="another BLEU")
    bound = Target(5.0, default=0.1, bound="lower")
    for target, values, said in (
        (EXACT, [80.0, 80.01], "± 0.3 (declared)"),
        (DEFAULT, [80.0, 80.01], "± 0.3 (the metric's default)"),
        (SPREAD, [80.0, 80.01], "published spread"),
        (because, [80.0, 80.01], "± 0.3 (declared: another BLEU)"),
        (EXACT, [79.5, 79.9, 80.1, 80.5], "about 6 seeds"),
        (EXACT, [80.25, 80.35], "not even 1000 seeds"),  # the mean is on the edge: more seeds cannot help
        (EXACT, [80.0], "one seed with an assumed deviation"),
        (SPREAD, [80.0], "one seed with the published deviation"),
        (bound, [6.0, 6.1], "lower bound 5"),
    ):
        assert said in compare(target, SeedValues.of(values)).reason
    assert "half a unit of the last printed decimal" in planned(10.375, Target(10.4)).reason


def test_the_list_is_closed():
    assert list(VERDICTS) == ["agrees", "smaller than published", "disagrees", "open", "untested"]
    assert len(REASONS) <= 10
    assert set(FAILURES) < set(VERDICTS)
    for fields in (("fine", "not run", "because"), ("open", "tired", "because"), ("agrees", "not run", "")):
        with pytest.raises(AssertionError):
            Verdict(*fields)


values = st.floats(0, 100)
seeds = st.lists(values, min_size=1, max_size=6)
targets = st.builds(
    Target,
    value=values,
    std=st.none() | st.floats(0, 5),
    n=st.none() | st.integers(1, 5),
    better=st.sampled_from([-1, 0, 1]),
    declared=st.none() | st.floats(0, 5),
    default=st.none() | st.floats(0.01, 5),
)


@given(seeds, targets)
def test_every_comparison_ends_in_a_verdict_with_a_reason(ours: list[float], target: Target):
    verdict = compare(target, SeedValues.of(ours))
    assert verdict.word in VERDICTS
    assert verdict.reason
    assert "nan" not in verdict.reason.lower()


@given(seeds, targets, st.integers(0, 5), st.sampled_from([math.nan, math.inf, -math.inf]))
def test_a_seed_without_a_finite_value_is_never_an_agreement(ours, target, place, bad):
    ours.insert(place, bad)
    assert compare(target, SeedValues.of(ours)).word == "disagrees"


@given(seeds, targets)
def test_mirrored_numbers_with_mirrored_direction_have_the_same_verdict(ours: list[float], target: Target):
    mirrored = Target(-target.value, target.std, target.n, -target.better, target.declared, target.default)
    assert compare(target, SeedValues.of(ours)).word == compare(mirrored, SeedValues.of(-x for x in ours)).word


@given(seeds, targets, st.floats(0, 3))
def test_a_larger_tolerance_never_makes_it_worse(ours: list[float], target: Target, more: float):
    assume(target.declared is not None)
    wider = Target(target.value, target.std, target.n, target.better, target.declared + more, target.default)
    if compare(target, SeedValues.of(ours)).word == "agrees":
        assert compare(wider, SeedValues.of(ours)).word == "agrees"


@given(seeds, targets)
def test_direction_only_chooses_between_better_and_disagrees(ours: list[float], target: Target):
    words = {
        compare(
            Target(target.value, target.std, target.n, sign, target.declared, target.default), SeedValues.of(ours)
        ).word
        for sign in (-1, 0, 1)
    }
    assert words <= {"open", "disagrees"} or len(words) == 1


@given(st.lists(st.floats(79, 81), min_size=2, max_size=6, unique=True), st.floats(0.01, 1), st.integers(2, 6))
def test_the_intervals_are_those_of_scipy(ours: list[float], std: float, n: int):
    evidence = SeedValues.of(ours)
    welch = stats.ttest_ind_from_stats(evidence.mean, evidence.std, evidence.n, 80.0, std, n, equal_var=False)
    sample = (evidence.std, evidence.n)
    student = stats.t.interval(0.95, evidence.n - 1, evidence.mean, evidence.std / math.sqrt(evidence.n))
    assert half_width([sample], Target(80.0)) == pytest.approx((student[1] - student[0]) / 2)
    spread = half_width([sample], Target(80.0, std=std, n=n, default=0.3))
    assert (abs(evidence.mean - 80.0) > spread) == (welch.pvalue < 0.05) or abs(welch.pvalue - 0.05) < 1e-6
    two = half_width([sample, (std, n)], Target(0.0))
    assert two == pytest.approx(spread)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_variance_is_moderated_by_an_assumed_one(n: int):
    """Degrees of freedom and sums of squares add up: 4 of a quarter of the tolerance, n - 1 of the seeds."""
    std = 0.2 if n > 1 else math.nan
    variance = (4 * 0.075**2 + (n - 1) * (0.2**2 if n > 1 else 0)) / (4 + n - 1)
    expected = stats.t.ppf(0.975, 4 + n - 1) * math.sqrt(variance / n)
    assert half_width([(std, n)], EXACT) == pytest.approx(expected)


def test_two_series_are_compared_by_the_difference_of_their_means():
    gain = Target(1.16, better=1, default=0.3)
    ours, than = SeedValues.of([80.95, 81.0, 81.05]), SeedValues.of([79.8, 79.85, 79.9])
    verdict = compare(gain, ours, than)
    assert verdict.word == "agrees"
    assert verdict.reason.startswith("difference -0.01 ± 0.12 (95 %) within ± 0.3")
    assert compare(gain, than, ours).word == "disagrees"
    assert compare(gain, ours, SeedValues.of([])).word == "disagrees"
