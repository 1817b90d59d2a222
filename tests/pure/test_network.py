"""Seconds of messages and averages: limits, monotonicity, and the cases that formulas give exactly."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resync.papers.plan.network import ALL_REDUCES, LINKS, Link, Network, halving_doubling, recursive_doubling, ring
from resync.workers.formulas.advice import Advice

WORKERS = st.integers(1, 100_000)
BYTES = st.floats(1, 1e12)
LATENCIES = st.floats(0, 1e-2)
BANDWIDTHS = st.floats(1e6, 1e12)
ALL = st.sampled_from(sorted(ALL_REDUCES))


def a_link(latency=1e-5, bandwidth=1e9):
    return Link("test", latency, bandwidth, "made up")


@given(BYTES, WORKERS, BANDWIDTHS)
def test_a_ring_without_latency_sends_each_byte_almost_twice(num_bytes, workers, bandwidth):
    found = ring(a_link(0, bandwidth), num_bytes, workers)
    assert found == pytest.approx(2 * (workers - 1) / workers * num_bytes / bandwidth)


@given(ALL, BYTES, WORKERS, LATENCIES, BANDWIDTHS, st.floats(1, 1e3))
def test_a_better_link_is_never_slower(name, num_bytes, workers, latency, bandwidth, better):
    cost = ALL_REDUCES[name]
    assert cost(a_link(latency, bandwidth * better), num_bytes, workers) <= cost(
        a_link(latency, bandwidth), num_bytes, workers
    )
    assert cost(a_link(latency / better, bandwidth), num_bytes, workers) <= cost(
        a_link(latency, bandwidth), num_bytes, workers
    )


@given(BYTES, st.sampled_from(sorted(LINKS)), ALL, st.integers(1, 16))
def test_one_worker_has_nobody_to_wait_for(num_bytes, link, name, node_size):
    network = Network(LINKS[link], node_size=node_size, all_reduce=name)
    assert network.average_seconds(num_bytes, 1) == network.exchange_seconds(num_bytes, 1, peers=3) == 0


@given(BYTES, st.integers(1, 17), LATENCIES, BANDWIDTHS)
def test_halving_doubling_is_never_slower_than_a_ring_at_powers_of_two(num_bytes, power, latency, bandwidth):
    link = a_link(latency, bandwidth)
    assert halving_doubling(link, num_bytes, 1 << power) <= ring(link, num_bytes, 1 << power) * (1 + 1e-12)


def test_cases_that_can_be_computed_by_hand():
    link = a_link(latency=1.0, bandwidth=1.0)
    assert ring(link, 12, 4) == 2 * 3 * (1 + 3)
    assert halving_doubling(link, 12, 4) == 2 * (1 + 6) + 2 * (1 + 3)
    assert recursive_doubling(link, 12, 4) == 2 * 13
    assert recursive_doubling(link, 12, 6) == (2 + 2) * 13  # two of six send theirs before and hear afterwards
    assert Network(link).exchange_seconds(12, 4, peers=2) == 2 * 13


def test_a_node_shares_its_link():
    inside, outside = a_link(0, 100.0), a_link(0, 1.0)
    network = Network(outside, inside, node_size=8)
    assert network.average_seconds(100, 16) == pytest.approx(2 * 7 / 8 + 2 * 1 / 2 * 100)
    assert network.average_seconds(100, 8) == pytest.approx(2 * 7 / 8)
    assert network.exchange_seconds(100, 16, peers=1) == 8 * 100
    assert network.exchange_seconds(100, 8, peers=1) == 1


def test_the_gpus_of_a_worker_average_inside_its_node():
    network = Network(a_link(0, 1.0), a_link(0, 100.0))
    assert network.inside_seconds(100, 8) == pytest.approx(2 * 7 / 8)
    assert network.inside_seconds(100, 1) == 0


def test_a_calibrated_slowdown_is_of_averages_only():
    network = Network(a_link(), slowdown=3.0)
    assert network.average_seconds(1e6, 4) == 3 * Network(a_link()).average_seconds(1e6, 4)
    assert network.exchange_seconds(1e6, 4, peers=1) == Network(a_link()).exchange_seconds(1e6, 4, peers=1)


@pytest.mark.parametrize("latency_bound", [True, False])
def test_latency_dominates_a_ring_whose_chunks_fit_into_the_latency(latency_bound):
    link = LINKS["ethernet_10g"]
    num_bytes = link.bytes_in_latency * 64 * (0.99 if latency_bound else 1.01)
    assert Network(link).latency_bound(num_bytes, 64) is latency_bound
    empty = ring(link, 0, 64)
    assert (ring(link, num_bytes, 64) - empty < empty) is latency_bound


def test_presets_say_where_their_figures_come_from():
    assert {"ethernet_10g", "ethernet_25g", "infiniband_100g", "nvlink_v100"} <= set(LINKS)
    assert all(link.source and 0 < link.latency < 1e-4 and link.bandwidth > 1e9 for link in LINKS.values())
    # What a message of 100 MB of ResNet-50 takes on 10 Gbit/s, with nothing but framing in the way.
    assert LINKS["ethernet_10g"].message(4 * 25_557_032) == pytest.approx(0.0869, abs=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Network(a_link(), all_reduce="rign"), "all-reduce: found 'rign', allowed: ring"),
        (lambda: Network(a_link(), node_size=0), "node size: found 0, allowed: integer >= 1"),
        (lambda: Network(a_link(), node_size=8).average_seconds(1, 12), "found 12, allowed: a multiple of the node"),
    ],
)
def test_what_no_formula_is_for_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


SECONDS = st.floats(1e-4, 1e4)


@given(SECONDS, SECONDS, st.floats(0.01, 0.99))
def test_the_advised_period_is_the_first_with_its_efficiency(computing, average, efficiency):
    advice = Advice.on_a_ring(4, computing, average)
    h = advice.period(efficiency)
    rounding = 1e-9
    assert advice.efficiency(h) >= efficiency - rounding
    assert h == 1 or advice.efficiency(h - 1) <= efficiency + rounding


@given(st.integers(2, 1000), BYTES, BANDWIDTHS)
def test_advice_has_a_rings_message_from_its_average_and_its_average_from_a_message(workers, num_bytes, bandwidth):
    link = a_link(0, bandwidth)
    average, message = ring(link, num_bytes, workers), link.message(num_bytes)
    by_average, by_message = Advice.on_a_ring(workers, 1.0, average), Advice.on_a_ring(workers, 1.0, message=message)
    assert (by_average.message, by_average.modelled) == (pytest.approx(message), "message")
    assert (by_message.average, by_message.modelled) == (pytest.approx(average), "average")


def test_advice_prints_the_table_of_the_page():
    page = (Path(__file__).parents[2] / "docs/library.md").read_text()
    [shown] = re.findall(r">>> print\(sync\.advise\(\)\)\n(.*?)\n```", page, re.DOTALL)
    assert str(Advice.on_a_ring(4, computing=0.1, average=0.3)) == shown
