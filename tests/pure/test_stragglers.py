"""Waiting for others: closed forms, bounds, and limits of the simulated recursion."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resync.papers.plan.stragglers import gossip_waiting, longest_delay


def waiting(workers, topology="exponential", peers=1, steps=1, compute=1.0, delay=1.0, message=0.0, overlap="none"):
    return gossip_waiting(
        topology, workers, peers, steps=steps, compute=compute, delay=delay, message=message, overlap=overlap
    )


@given(st.integers(1, 2000), st.floats(0, 10))
def test_the_longest_of_single_delays_is_a_harmonic_number(workers, mean):
    assert longest_delay(mean, workers) == pytest.approx(mean * sum(1 / k for k in range(1, workers + 1)))


@pytest.mark.parametrize(("workers", "steps"), [(1, 5), (4, 3), (32, 12), (64, 4000)])
def test_the_longest_of_many_steps_agrees_with_draws(workers, steps):
    draws = np.random.default_rng(0).standard_gamma(steps, size=(4000, workers)).max(axis=1)
    error = draws.std() / sqrt(len(draws))
    assert longest_delay(1.0, workers, steps) == pytest.approx(draws.mean(), abs=4 * error)


def test_rare_averages_wait_less():
    per_step = [(longest_delay(1.0, 32, steps) - steps) / steps for steps in (1, 2, 4, 16, 64, 256)]
    assert per_step == sorted(per_step, reverse=True)
    assert per_step[-1] < 0.15 < 3 < per_step[0]


@pytest.mark.parametrize("workers", [4, 16, 64])
def test_gossip_waits_longer_than_for_its_peers_and_shorter_than_for_all(workers):
    found = waiting(workers)
    assert longest_delay(1.0, 2) - 1 < found < longest_delay(1.0, workers) - 1
    assert waiting(workers, overlap="bounded") < found
    assert waiting(workers, overlap="bounded", steps=2) < waiting(workers, overlap="none", steps=2)


@pytest.mark.parametrize(
    ("workers", "topology"), [(2, "exponential"), (2, "bipartite_exponential"), (2, "random"), (8, "complete")]
)
def test_who_hears_all_waits_for_all(workers, topology):
    peers = workers - 1
    assert waiting(workers, topology, peers) == pytest.approx(longest_delay(1.0, workers) - 1, rel=0.03)


def test_nobody_waits_without_delays_or_others():
    assert waiting(8, delay=0.0, message=5.0) == waiting(1) == longest_delay(0.0, 1000) == 0


def test_a_message_longer_than_any_step_hides_the_delays():
    assert waiting(8, compute=1.0, delay=0.01, message=50.0, overlap="bounded") == pytest.approx(0, abs=1e-9)


def test_delays_scale_the_waiting():
    assert waiting(8, delay=0.2, compute=0.2, message=0.1) == pytest.approx(
        0.2 * waiting(8, delay=1.0, compute=1.0, message=0.5)
    )


def test_an_impossible_topology_is_refused():
    with pytest.raises(ValueError, match="bipartite_exponential with 7 workers"):
        waiting(7, "bipartite_exponential")
