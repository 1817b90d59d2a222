"""The two searches of a learning rate, on trainings that are known."""

from math import nan

import pytest

from resync.workers.formulas.rate_search import Fastest, SearchEvent, Settled, events, measured_steps


def test_errors_are_measured_at_634_of_20000_steps():
    points = measured_steps(20_000)
    assert (len(points), sum(points), points[:4], points[-1]) == (634, 2_022_341, (1, 2, 3, 4), 20_000)
    assert points[102:104] == (103, 105)


def test_events_come_in_order():
    found = list(events([(1, 4.0), (2, 2.0), (3, 2.5), (5, 2.45), (8, 2.5), (9, 4.1), (10, 0.0)], tolerance=0.1))
    assert found == [
        SearchEvent(*event) for event in (
            ("value", 1, 4.0), ("value", 2, 2.0), ("value", 3, 2.5), ("rise", 3, 2.5), ("value", 5, 2.45),
            ("value", 8, 2.5), ("rise", 8, 2.5), ("plateau", 8, pytest.approx(7.45 / 3)), ("value", 9, 4.1),
            ("diverged", 9, 4.1),
        )
    ]  # fmt: skip
    assert [each.kind for each in events([(1, 1.0), (2, nan)], 0.1)] == ["value", "value", "diverged"]
    assert [each.kind for each in events([(1, 1.0)], 0.1)] == ["value", "end"]


def falling(lr):
    """Gradient descent on x^2 / 2 from 10: the error is multiplied by (1 - lr)^2 in every step."""
    return ((step, 50 * (1 - lr) ** (2 * step)) for step in measured_steps(20_000))


def test_the_fastest_rate_is_recorded_halved():
    search = Fastest(start=10, most_trials=30)
    search.run(falling)
    needed = next(step for step, error in falling(search.fastest_rate) if error < 1e-6)
    assert search.steps == needed
    assert search.lr == search.fastest_rate / 2
    assert not search.exhausted


def biased(lr):
    """A bias of (lr / 100)^2 stays."""
    return ((step, 50 * (1 - lr) ** (2 * step) + (lr / 100) ** 2) for step in measured_steps(20_000))


def test_the_search_ends_at_a_rate_with_a_bias_just_below_the_target():
    search = Settled(start=1, most_trials=25)
    search.run(biased)
    assert 0.8e-6 < (search.rate / 100) ** 2 < 1e-6  # the rest of a plateau has not yet settled
    assert search.fastest_rate == search.lr <= search.rate
    assert not search.exhausted


def test_a_search_ends_at_its_largest_number_of_trainings():
    search = Settled(start=1, most_trials=3)
    search.run(biased)
    assert (search.trials, search.exhausted) == (3, True)


def test_a_search_that_never_reaches_the_target_finds_nothing():
    search = Fastest(start=1e-4, most_trials=30)
    search.run(lambda lr: ((step, 1.0) for step in measured_steps(20_000)))
    assert (search.steps, search.lr) == (None, None)
