import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resync.runs.results.seed_values import (
    SeedValues,
    as_published,
    decimals_for,
    decimals_of,
    difference_text,
    notation,
    number,
)

numbers = st.floats(-1e6, 1e6)


def test_notation():
    assert SeedValues.of([80.92, 80.97, 81.02]).text() == "80.970 ± 0.050 (n=3)"
    assert SeedValues.of([340.0, 384.0, 430.0]).text() == "385 ± 45 (n=3)"
    assert SeedValues.of([0.1 + 0.2, 0.3]).text() == "0.30 ± 0.00 (n=2)"
    assert SeedValues.of([129.0, 129.0, 130.0]).text(0) == "129 ± 1 (n=3)"
    assert SeedValues.of([80.97]).text() == "80.97 (n=1)"
    assert SeedValues.of([]).text() == ""
    assert notation(80.975, decimals=1) == "81.0"
    assert as_published(80.98, 0.05, 3) == "80.98 ± 0.05 (n=3)"
    assert as_published(80.9, 0.05, 3) == "80.90 ± 0.05 (n=3)"
    assert as_published(80.98, 0.1) == "80.98 ± 0.10"
    assert as_published(10.4) == "10.4"
    assert number(-0.001) == "0.00"
    assert number(math.inf) == "∞"


def test_equal_values_have_no_deviation():
    share = 100 / 2340  # whose sum of six, divided by six, is another number
    assert SeedValues.of([share] * 6).std == SeedValues.of([0.1 + 0.2, 0.3]).std == 0
    assert SeedValues.of([share, share * (1 + 1e-12)]).std > 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_never_becomes_a_number(bad: float):
    evidence = SeedValues.of([80.0, bad, 81.0])
    assert math.isnan(evidence.mean)
    assert math.isnan(evidence.std)
    assert evidence.text() == "NaN (n=3)"


@pytest.mark.parametrize(("value", "decimals"), [(10.4, 1), (80.98, 2), (25, 1), (26.7, 1), (1e-6, 6), (0.125, 3)])
def test_decimals_of_a_printed_number(value: float, decimals: int):
    assert decimals_of(value) == decimals


@pytest.mark.parametrize(("spread", "decimals"), [(65.4, 0), (9.7, 1), (-0.81, 2), (0.019, 3), (1e-4, 5), (0, 2)])
def test_a_spread_is_shown_with_two_significant_digits(spread: float, decimals: int):
    assert decimals_for(spread) == decimals


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-0.4338, "-0.43"),
        (0.0212, "+0.021"),
        (0.0, "+0.00"),
        (-127.8, "-127.80"),
        (1e-32, "+0.000000"),
        (None, "\N{EN DASH}"),
        (math.nan, "\N{EN DASH}"),
    ],
)
def test_a_difference_is_shown_with_its_sign(value: float | None, text: str):
    assert difference_text(value) == text


@given(st.lists(numbers, min_size=2, max_size=6))
def test_mean_and_std_do_not_depend_on_the_order_of_seeds(values: list[float]):
    forward, backward = SeedValues.of(values), SeedValues.of(reversed(values))
    assert forward.mean == backward.mean
    assert forward.std == backward.std
    assert min(values) - 1e-9 <= forward.mean <= max(values) + 1e-9


@given(numbers)
def test_one_seed_has_no_standard_deviation(value: float):
    assert math.isnan(SeedValues.of([value]).std)
