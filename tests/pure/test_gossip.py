"""Topologies, mixing matrices, averaging: recorded traces of the original, and properties at random sizes."""

import json
from pathlib import Path

import averaging
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quadratic import NUMBERED

from resync.workers.formulas import mixing, topology
from resync.workers.formulas.weighted_topology import WEIGHTED as WEIGHTED_TOPOLOGIES

TRACES = json.loads((Path(__file__).parents[1] / "data" / "sgp_traces_n4.json").read_text())
AVERAGING = TRACES["averaging_paper_era"] + TRACES["averaging_2023"]
WEIGHTED = [each.name for each in WEIGHTED_TOPOLOGIES]
DRAWN = ["od_equidyn", "ou_equidyn", "random_matching"]
BIPARTITE = ["bipartite_exponential", "bipartite_linear"]


def most_peers(name, num_workers):
    """The largest number of peers, at most 5."""
    if name in ("complete", "undirected_ring", "chain", "binary_tree", "star", *DRAWN):
        return 1
    # The peer list of `exponential` grows with peers and always has enough of them below num_workers.
    listed = name not in ("exponential", *WEIGHTED)
    return min(5, len(topology.peer_list(name, 0, num_workers)) if listed else num_workers - 1)


@st.composite
def graphs(draw, names=tuple(topology.TOPOLOGIES)):
    """A topology, a number of workers and a number of peers that go together."""
    name = draw(st.sampled_from(names))
    num_workers = draw(st.integers(1, 32)) * 2 if name in BIPARTITE else draw(st.integers(2, 64))
    if name == "hypercube":
        num_workers, peers = draw(st.sampled_from([(2, 1), (32, 1), (6, 2), (9, 2), (54, 2), (12, 3), (60, 4)]))
        return name, num_workers, peers
    return name, num_workers, draw(st.integers(1, most_peers(name, num_workers)))


mixes = st.integers(0, 200)


@pytest.mark.parametrize("trace", AVERAGING, ids=lambda t: f"{t['gossiper']}-{t['graph_type']}")
def test_recorded_averaging_is_reproduced(trace):
    name, n = NUMBERED[trace["graph_type"]], trace["world_size"]
    assert [topology.peer_list(name, r, n) for r in range(n)] == trace["phone_book"]
    result = averaging.average(
        trace["initial"]["value"], name, len(trace["iterations"]), weights=trace["initial"]["weight"]
    )
    for k, recorded in enumerate(trace["iterations"]):
        assert [topology.out_peers(name, r, n, k) for r in range(n)] == recorded["out_peers"]
        assert [topology.in_peers(name, r, n, k) for r in range(n)] == recorded["in_peers"]
        np.testing.assert_allclose(result.values[k + 1], recorded["value"], rtol=0, atol=1e-12)
        np.testing.assert_allclose(result.weights[k + 1], recorded["weight"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "num_workers", "peers", "expected"),
    [
        ("exponential", 8, 1, [1, 2, 4]),
        ("exponential", 9, 2, [1, 2, 3, 6]),
        # log_3(243) is 5; 2 * 243 = 242 modulo 244
        ("exponential", 244, 2, [1, 2, 3, 6, 9, 18, 27, 54, 81, 162, 243]),
        ("exponential", 6, 2, [1, 2, 3]),  # 2 * 3 would be the worker itself
        ("symmetric_exponential", 4, 1, [1, 3, 2]),
        ("symmetric_exponential", 3, 1, [1, 2]),
        ("linear", 5, 1, [1, 4, 3, 2]),
        ("linear", 8, 1, [1, 7, 3, 5]),
        ("ring", 5, 1, [1, 4]),
        ("ring", 2, 1, [1]),
        ("complete", 4, 1, [1, 2, 3]),
        ("bipartite_exponential", 8, 1, [7, 1, 5, 3]),  # +5 and -5 repeat -3 and +3
    ],
)
def test_peer_lists(name, num_workers, peers, expected):
    found = topology.peer_list(name, 0, num_workers, peers)
    assert found[: len(expected)] == expected
    assert len(found) == len(set(found)) == (12 if num_workers == 244 else len(expected))


def test_two_peers_take_turns_in_pairs():
    pairs = [topology.out_peers("symmetric_exponential", 0, 8, k, peers=2) for k in range(4)]
    assert pairs == [[1, 7], [2, 6], [4, 1], [7, 2]]
    assert [topology.out_peers("ring", 3, 8, k, peers=2) for k in range(2)] == [[4, 2], [4, 2]]


@pytest.mark.parametrize(
    ("num_workers", "offsets"),
    [(32, [(1, 2), (4, 8), (16, 1), (2, 4), (8, 16), (1, 2)]), (8, [(1, 2), (4, 1), (2, 4), (1, 2)])],
)
def test_two_peers_of_the_paper_are_the_next_two_powers_of_two(num_workers, offsets):
    """One peer list for any number of peers, as in the version of May 2019; number 5 has lists of its own."""
    for worker in (0, 5):
        expected = [[(worker + offset) % num_workers for offset in pair] for pair in offsets]
        peers = [
            topology.out_peers("directed_exponential", worker, num_workers, k, peers=2) for k in range(len(offsets))
        ]
        assert peers == expected
        one = [topology.out_peers("directed_exponential", worker, num_workers, k) for k in range(6)]
        assert one == [topology.out_peers("exponential", worker, num_workers, k) for k in range(6)]
    assert topology.peer_list("exponential", 0, 32, peers=2) == [1, 2, 3, 6, 9, 18, 27, 22]


@given(graphs(), mixes, st.integers(0, 3))
def test_in_peers_are_the_workers_that_send(graph, k, seed):
    name, n, peers = graph
    out = [topology.out_peers(name, r, n, k, peers, seed) for r in range(n)]
    for worker, receivers in enumerate(out):
        if name not in WEIGHTED:
            assert len(receivers) == (n - 1 if name == "complete" else peers)
        assert len(set(receivers)) == len(receivers)
        assert worker not in receivers
        assert topology.in_peers(name, worker, n, k, peers, seed) == [s for s in range(n) if worker in out[s]]


@given(graphs(), mixes, st.integers(0, 3))
def test_matrices_are_column_stochastic_and_doubly_so_on_regular_graphs(graph, k, seed):
    name, n, peers = graph
    mix = mixing.matrix(name, n, k, peers, seed=seed)
    assert np.all(mix >= 0)
    np.testing.assert_allclose(mix.sum(axis=0), 1, rtol=0, atol=1e-12)
    if topology.resolve(name).regular:
        assert mixing.is_doubly_stochastic(mix)


@given(graphs(BIPARTITE), mixes)
def test_bipartite_graphs_exchange_in_pairs(graph, k):
    name, n, peers = graph
    mix = mixing.matrix(name, n, k, peers)
    np.testing.assert_array_equal(mix, mix.T)
    if peers == 1:
        pairs = [topology.out_peers(name, r, n, k)[0] for r in range(n)]
        assert all(pairs[pairs[r]] == r and (pairs[r] - r) % 2 for r in range(n))


@pytest.mark.parametrize("log_n", range(7))
def test_exponential_reaches_consensus_after_log2_n_mixes(log_n):
    values = np.random.default_rng(0).normal(size=(2**log_n, 3))
    result = averaging.average(values, "exponential", log_n)
    np.testing.assert_allclose(result.values[-1] - values.mean(axis=0), 0, atol=1e-14)


def test_complete_is_all_reduce():
    for n in (1, 2, 5):
        np.testing.assert_array_equal(mixing.matrix("complete", n, 3), np.full((n, n), 1 / n))
    np.testing.assert_array_equal(mixing.matrix("complete", 5, 3, peers=4), np.full((5, 5), 0.2))


def test_random_peers_follow_the_seed_and_the_debiased_values_find_the_mean():
    def draws(seed):
        return [topology.out_peers("random", r, 16, k, 2, seed) for r in range(16) for k in range(20)]

    assert draws(0) == draws(0) != draws(1)
    assert topology.out_peers("random", 0, 16, 0, 2) != topology.out_peers("random", 0, 16, 1, 2)
    values = np.random.default_rng(0).normal(size=(16, 2))
    result = averaging.average(values, "random", 100, seed=3)
    assert not np.allclose(result.weights[-1], 1)
    np.testing.assert_allclose(result.values[-1] / result.weights[-1][:, None] - values.mean(axis=0), 0, atol=1e-10)


@pytest.mark.parametrize("name", topology.TOPOLOGIES)
def test_one_worker_talks_to_nobody(name):
    assert name in WEIGHTED or topology.peer_list(name, 0, 1) == []
    assert topology.out_peers(name, 0, 1, 5) == topology.in_peers(name, 0, 1, 5) == []
    np.testing.assert_array_equal(mixing.matrix(name, 1, 5, peers=2), [[1.0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bipartite_exponential", 0, 7, 0), "with 7 workers: expected an even number of workers"),
        (("exponential", 0, 4, 0, 4), "with 4 workers has 3 peers per worker, found peers = 4"),
        (("ring", 0, 8, 0, 3), "has 2 peers"),
        (("complete", 0, 8, 0, 3), "always uses all 7 peers"),
        (("exponential", 0, 8, 0, 0), "peers is 0"),
        (("exponential", 8, 8, 0), "worker is 8, expected 0..7"),
        (("exponential", 0, 0, 0), "num_workers is 0"),
        (("exponential", 0, 8, -1), "number of the mixing step is -1"),
        (("exponentail", 0, 8, 0), "no topology 'exponentail': expected symm"),
    ],
)
def test_invalid_requests_are_errors(arguments, message):
    for peers_of in (topology.out_peers, topology.in_peers):
        with pytest.raises(ValueError, match=message):
            peers_of(*arguments)
