"""Topologies with weights of their own: those of their authors' code, exact averages, properties at every size."""

import json
from fractions import Fraction
from functools import reduce
from math import log
from pathlib import Path

import averaging
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resync.workers.formulas import equitopo, finite_time, mixing, topology, weighted_topology

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "base_graph.json").read_text())
GRAPHS = ["base_graph", "simple_base_graph"]
SYMMETRIC = ["hypercube", *GRAPHS, "u_equistatic", "ou_equidyn", "random_matching"]
RECORDED = [
    (name, int(k[2:]), int(n[2:]), steps)
    for name in GRAPHS
    for k, sizes in GOLDEN[name].items()
    for n, steps in sizes.items()
]


@pytest.fixture(scope="module")
def equitopo_recorded(real_data):
    """What the authors' EquiTopo drew; it has no licence, so that it is not in this repository."""
    return json.loads((real_data / "baselines-consensus" / "equitopo_golden.json").read_text())


@pytest.mark.parametrize(("name", "peers", "n", "recorded"), RECORDED, ids=lambda each: str(each)[:20])
def test_base_graphs_are_those_of_their_authors(name, peers, n, recorded):
    steps = getattr(finite_time, name)(range(n), peers)
    assert len(steps) == len(recorded) == topology.cycle(name, n, peers)
    for k, edges in enumerate(recorded):
        assert steps[k] == {(i, j): Fraction(weight) for i, j, weight in edges}
        receivers = [
            sorted({*(j for i, j, _ in edges if i == r), *(i for i, j, _ in edges if j == r)}) for r in range(n)
        ]
        assert [topology.out_peers(name, r, n, k + len(recorded), peers) for r in range(n)] == receivers
        assert [topology.in_peers(name, r, n, k, peers) for r in range(n)] == receivers


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("peers", [1, 2, 3, 4])
def test_base_graphs_average_exactly_in_the_stated_number_of_steps(name, peers):
    """2 to 64 workers, 32 with three or four peers."""
    stated = GOLDEN["rounds"][name][f"k={peers}"]
    for n, steps in enumerate(stated, start=2):
        values = np.random.default_rng(n).normal(size=(n, 2))
        found = averaging.average(values, name, steps, peers).values
        np.testing.assert_allclose(found[-1] - values.mean(axis=0), 0, atol=1e-12)
        assert topology.cycle(name, n, peers) == steps
        assert max(len(topology.out_peers(name, r, n, k, peers)) for r in range(n) for k in range(steps)) <= peers


@pytest.mark.parametrize("peers", [1, 2, 3, 4])
def test_base_graphs_keep_the_bound_of_their_authors(peers):
    """At most 2 log_{k+1}(n) + 2 mixing steps, which the authors assert for these n and k (Takezawa et al. 2023)."""
    steps = {n: topology.cycle("base_graph", n, peers) for n in range(2, 100)}
    assert all(found <= 2 * log(n, peers + 1) + 2 for n, found in steps.items())
    product = reduce(np.matmul, (mixing.matrix("base_graph", 97, k, peers) for k in range(steps[97])))
    np.testing.assert_allclose(product, 1 / 97, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("peers", "n", "steps"), [(1, 2, 1), (1, 64, 6), (2, 6, 2), (2, 27, 3), (3, 48, 3), (6, 49, 2)]
)
def test_the_hypercube_averages_exactly(peers, n, steps):
    assert topology.cycle("hypercube", n, peers) == steps
    values = np.random.default_rng(0).normal(size=(n, 2))
    found = averaging.average(values, "hypercube", steps, peers).values[-1]
    np.testing.assert_allclose(found - values.mean(axis=0), 0, atol=1e-12)


@given(st.integers(2, 64), st.integers(1, 5), st.integers(0, 50), st.integers(0, 3))
def test_equistatic_graphs_have_the_weights_of_their_offsets(n, degree, k, seed):
    directed = mixing.matrix("d_equistatic", n, k, degree, seed=seed)
    assert np.allclose(directed.diagonal(), 1 / n, rtol=0, atol=1e-15)
    # Every diagonal of offsets has one weight, a multiple of (n - 1) / (n M).
    first = directed[:, 0]
    assert all(np.array_equal(np.roll(first, r), directed[:, r]) for r in range(n))
    counts = first[1:] * n * degree / (n - 1)
    np.testing.assert_allclose(counts, np.round(counts), rtol=0, atol=1e-12)
    undirected = mixing.matrix("u_equistatic", n, k, degree, seed=seed)
    np.testing.assert_allclose(undirected, (directed + directed.T) / 2, rtol=0, atol=1e-15)


@given(st.integers(2, 64), st.integers(0, 200), st.integers(0, 3))
def test_drawn_graphs_have_one_peer(n, k, seed):
    shift = [topology.out_peers("od_equidyn", r, n, k, seed=seed) for r in range(n)]
    [offset] = {(receiver - r) % n for r, [receiver] in enumerate(shift)}
    assert offset
    for name, weight in (("ou_equidyn", Fraction(n - 1, 2 * n)), ("random_matching", Fraction(1, 2))):
        peers = [topology.out_peers(name, r, n, k, seed=seed) for r in range(n)]
        paired = [r for r in range(n) if peers[r]]
        assert all(peers[peers[r][0]] == [r] and peers[r] != [r] for r in paired)
        assert len(paired) == n - n % 2 if name == "random_matching" else len(paired) >= n / 2
        assert set(mixing.matrix(name, n, k, seed=seed).ravel()) <= {0.0, 1.0, float(weight), float(1 - weight)}


@given(st.sampled_from(SYMMETRIC), st.integers(1, 4), st.integers(0, 50), st.integers(0, 3))
def test_symmetric_graphs_are(name, peers, k, seed):
    peers = 1 if name in ("ou_equidyn", "random_matching") else peers
    for n in (12, 60) if name == "hypercube" else (5, 23):
        if name != "hypercube" or peers > 3:
            mix = mixing.matrix(name, n, k, peers, seed=seed)
            np.testing.assert_array_equal(mix, mix.T)


@pytest.mark.parametrize(
    ("name", "neighbours"),
    [
        ("undirected_ring", [[1, 5], [0, 2], [1, 3], [2, 4], [3, 5], [0, 4]]),
        ("chain", [[1], [0, 2], [1, 3], [2, 4], [3, 5], [4]]),
        ("binary_tree", [[1], [0, 2, 3], [1, 4, 5], [1], [2], [2]]),
        ("star", [[1, 2, 3, 4, 5], [0], [0], [0], [0], [0]]),
    ],
)
def test_neighbours_have_metropolis_weights(name, neighbours):
    """The tree and its weights are those of the published code: golden.json of relaysgd-quadratics."""
    assert [topology.out_peers(name, worker, 6, 3) for worker in range(6)] == neighbours
    mix = mixing.matrix(name, 6, 0)
    for worker, own in enumerate(neighbours):
        for other in own:
            assert mix[worker, other] == 1 / (1 + max(len(own), len(neighbours[other])))
    np.testing.assert_array_equal(mix, mix.T)


def test_a_star_has_no_negative_eigenvalue():
    """One of 0, printed in the paper's notebook of figure 8."""
    assert np.linalg.eigvalsh(mixing.matrix("star", 32, 0))[0] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", [each.name for each in weighted_topology.WEIGHTED])
def test_the_seed_decides_what_is_drawn_and_nothing_else(name):
    first, again, other = (np.array([mixing.matrix(name, 16, k, seed=seed) for k in range(4)]) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.array_equal(first, other) is not topology.resolve(name).random


@pytest.mark.parametrize("eta", [Fraction(1, 4), equitopo.ETA, Fraction(1)])
def test_a_drawn_shift_leaves_the_stated_part_of_the_squared_distances(eta):
    n, values = 9, np.random.default_rng(0).normal(size=9)
    values -= values.mean()
    left = []
    for offset in range(1, n):
        mixed = values.copy()
        for (sender, receiver), weight in equitopo.shift(n, offset, eta).items():
            mixed[receiver] += float(weight) * (values[sender] - values[receiver])
        left.append(mixed @ mixed)
    b = float(eta) * (n - 1) / n
    assert np.mean(left) / (values @ values) == pytest.approx((1 - b) ** 2 + b**2 - 2 * (1 - b) * b / (n - 1))


def test_all_pairs_meet_in_random_matchings():
    draws = {(r, *topology.out_peers("random_matching", r, 6, k, seed=1)) for k in range(60) for r in range(6)}
    assert draws == {(r, s) for r in range(6) for s in range(6) if r != s}
    assert topology.cycle("random_matching", 6) == 0
    assert topology.cycle("d_equistatic", 6, 2) == 1


@pytest.mark.parametrize("n", [5, 8, 16, 17])
def test_equitopo_graphs_are_those_of_their_authors(equitopo_recorded, n):
    for offset in equitopo_recorded["od_equidyn_complete"][f"n={n}"]:
        expected = {(r, (r + offset) % n): Fraction(n - 1, n) for r in range(n)}
        assert equitopo.shift(n, offset, Fraction(1)) == expected
    for pairs in equitopo_recorded["ou_equidyn_complete"][f"n={n}"]:
        both = {(r, s): Fraction(n - 1, n) for i, j in pairs for r, s in ((i, j), (j, i))}
        offset = pairs[0][1] - pairs[0][0]
        drawn = [equitopo.matching(n, p, start, Fraction(1)) for p in (offset, n - offset) for start in range(n)]
        assert both in drawn
    for degree in (1, 2, 4):
        recorded = equitopo_recorded["d_equistatic"][f"n={n},M={degree}"]
        for symmetric, norm in ((False, "norm_directed"), (True, "norm_undirected")):
            mix = np.eye(n)
            for (sender, receiver), weight in equitopo.static(
                n, recorded["basis_offsets"], symmetric=symmetric
            ).items():
                mix[receiver, sender] += float(weight)
                mix[sender, sender] -= float(weight)
            assert np.linalg.norm((np.eye(n) - 1 / n) @ mix, 2) == pytest.approx(recorded[norm], abs=1e-7)
            if not symmetric:
                np.testing.assert_allclose(mix[:, 0], recorded["row0"], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "n", "peers", "message"),
    [
        ("hypercube", 6, 1, "with 6 workers and 1 peers: expected a number of workers without prime factors above 2"),
        ("random_matching", 4, 2, "has 1 peer per worker, found peers = 2"),
        ("chain", 4, 2, "always uses all neighbours: found peers = 2"),
        ("od_equidyn", 4, 0, "peers is 0"),
    ],
)
def test_graphs_that_do_not_exist_are_errors(name, n, peers, message):
    for asked in (topology.cycle, lambda *graph: mixing.matrix(*graph[:2], 0, graph[2])):
        with pytest.raises(ValueError, match=message):
            asked(name, n, peers)
    with pytest.raises(ValueError, match="has no peer lists"):
        topology.peer_list(name, 0, 4)


@pytest.mark.parametrize(("name", "n", "peers"), [("base_graph", 7, 2), ("ou_equidyn", 9, 1), ("exponential", 8, 2)])
@pytest.mark.parametrize(("first", "last"), [(0, 23), (3, 4)])
def test_messages_are_counted_as_they_are_sent(name, n, peers, first, last):
    found = topology.messages(name, n, peers, 5, first, last)
    sent = [[len(topology.out_peers(name, r, n, k, peers, 5)) for r in range(n)] for k in range(first, last)]
    assert sum(mean * count for (mean, _), count in found.items()) * n == sum(map(sum, sent))
    assert sorted(most for (_, most), count in found.items() for _ in range(count)) == sorted(map(max, sent))
