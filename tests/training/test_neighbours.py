"""Algorithms on a fixed graph of neighbours, and the search of their learning rate, beside recursions written out."""

import numpy as np
import pytest
import torch
from quadratic import Problem

from resync.base.errors import UserError
from resync.runs.train.search import Trials, _delay
from resync.tasks.data.quadratics import drawn
from resync.tasks.models.point import PointModel
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.members import Members
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers
from resync.workers.formulas import mixing
from resync.workers.formulas.rate_search import Fastest, Settled, measured_steps
from resync.workers.sync.options import D2, DPSGD, SGP, AllReduce, GradientTracking, RelaySum

CENTRES = np.random.default_rng(1).normal(size=(6, 2))
START = [0.5, -1.0]
LR = 0.1
EXACT = {"rtol": 1e-12, "atol": 1e-13}
NEIGHBOURS = {
    "chain": [[1], [0, 2], [1, 3], [2, 4], [3, 5], [4]],
    "binary_tree": [[1], [0, 2, 3], [1, 4, 5], [1], [2], [2]],
    "star": [[1, 2, 3, 4, 5], [0], [0], [0], [0], [0]],
}


def started(name, **options):
    """The problem, and its start as [6, 2]."""
    problem = Problem(name, CENTRES, START, **options)
    return problem, np.tile(START, (6, 1))


@pytest.mark.parametrize("topology", ["undirected_ring", "chain", "binary_tree", "star"])
def test_d2_is_its_recursion_over_two_steps(topology):
    problem, x = started("d2", topology=topology)
    w, before, gradient_before = mixing.matrix(topology, 6, 0), None, None
    for _ in range(8):
        gradient = x - CENTRES
        change = -LR * gradient if before is None else x - before - LR * (gradient - gradient_before)
        before, gradient_before, x = x, gradient, w @ (x + change)
        problem.step()
        np.testing.assert_allclose(problem.rows, x, **EXACT)


@pytest.mark.parametrize("topology", ["undirected_ring", "binary_tree"])
def test_gradient_tracking_is_its_recursion_with_the_tracked_mean(topology):
    problem, x = started("gradient_tracking", topology=topology)
    w = mixing.matrix(topology, 6, 0)
    gradient = y = x - CENTRES
    for _ in range(8):
        x = w @ (x - LR * y)
        new = x - CENTRES
        y, gradient = w @ y + new - gradient, new
        problem.step()
        np.testing.assert_allclose(problem.rows, x, **EXACT)
        np.testing.assert_allclose(y.mean(0), gradient.mean(0), **EXACT)


@pytest.mark.parametrize("name", ["dpsgd", "d2", "gradient_tracking"])
def test_a_weight_of_the_neighbours_replaces_that_of_the_graph(name):
    problem, x = started(name, topology="undirected_ring", weight=0.2)
    x = x - LR * (x - CENTRES)  # the first step of all three
    problem.step()
    np.testing.assert_allclose(problem.rows, 0.6 * x + 0.2 * np.roll(x, 1, 0) + 0.2 * np.roll(x, -1, 0), **EXACT)


def test_a_weight_leaves_something_of_a_worker_itself():
    problem, _ = started("d2", topology="undirected_ring", weight=0.6)
    with pytest.raises(UserError, match=r"weight: found 0\.6 for each of 2 neighbours, allowed: at most 1/2"):
        problem.step()


@pytest.mark.parametrize("relayed", ["model", "gradient"])
@pytest.mark.parametrize("topology", ["chain", "binary_tree", "star"])
def test_relaysum_is_its_recursion_with_messages_and_counts(topology, relayed):
    problem, start = started("relaysum", topology=topology, relayed=relayed)
    neighbours, x = NEIGHBOURS[topology], start
    message = {(i, j): (np.zeros(2), 0) for i in range(6) for j in neighbours[i]}
    for _ in range(8):
        gradient = x - CENTRES
        h = x - LR * gradient if relayed == "model" else gradient
        message = {
            (i, j): (
                h[i] + sum((message[q, i][0] for q in neighbours[i] if q != j), start=np.zeros(2)),
                1 + sum(message[q, i][1] for q in neighbours[i] if q != j),
            )
            for i, j in message
        }
        arrived = np.array([sum(message[q, i][0] for q in neighbours[i]) for i in range(6)])
        counts = np.array([[sum(message[q, i][1] for q in neighbours[i])] for i in range(6)])
        x = (h + arrived + (5 - counts) * start) / 6 if relayed == "model" else x - LR / 6 * (gradient + arrived)
        problem.step()
        np.testing.assert_allclose(problem.rows, x, **EXACT)


def test_relaysum_averages_all_workers_after_as_many_steps_as_the_diameter():
    problem, _ = started("relaysum", topology="chain")
    for _ in range(5):
        problem.step()
    counted = problem.sync.transport.bytes_of_all
    problem.step(still=True)
    assert problem.sync.transport.bytes_of_all - counted == 10 * 2 * 8
    assert len(problem.sync.missing) == 4


def test_sgp_with_two_mixing_steps_goes_through_the_hops_of_the_whole_training():
    problem, x = started("sgp", mixing_steps=2)
    number = 0
    for _ in range(6):
        x = x - LR * (x - CENTRES)
        for _ in range(2):
            hop = 2 ** (number % 3)
            x = (x + x[(np.arange(6) - hop) % 6]) / 2
            number += 1
        problem.step()
        np.testing.assert_allclose(problem.rows, x, **EXACT)


# The search


ALGORITHMS = {
    "Gossip ring": DPSGD(topology="undirected_ring"),
    "Gossip tree": DPSGD(topology="binary_tree"),
    "All-reduce ring": AllReduce(),
    "D2 ring": D2(),
    "Gradient tracking ring": GradientTracking(),
    "Gradient tracking tree": GradientTracking(topology="binary_tree"),
    "RelaySum/Model chain": RelaySum(topology="chain"),
    "RelaySum/Model tree": RelaySum(),
    "RelaySum/Grad chain": RelaySum(topology="chain", relayed="gradient"),
    "RelaySum/Grad tree": RelaySum(relayed="gradient"),
    "SGP exponential": SGP(mixing_steps=2),
}


def trials(name, workers, seed, heterogeneity, distance, copies=1):
    functions = drawn(workers, seed, heterogeneity, distance)
    transport = Transport(Members(workers), Clocks(torch.device("cpu")))
    return Trials(functions, ALGORITHMS[name], Workers(PointModel(10 * copies), workers), transport)


def test_one_worker_has_no_gradient_at_its_own_optimum():
    with pytest.raises(UserError, match=r"^data quadratics: heterogeneity: found 0\.5 with 1 worker, allowed: 0$"):
        drawn(1, 0, 0.5, 1.0)
    assert len(drawn(1, 0, 0.0, 1.0).matrices) == 1


# The errors of the published code after 1, 5 and 10 steps at a learning rate of 0.1, from golden.json of
# relaysgd-quadratics (4 workers, heterogeneity 0.01, distance 100, seed 0).
GOLDEN = {
    "SGP exponential": [4949.39533010964, 3090.5036761616293, 1735.561233378363],
    "D2 ring": [4949.39533010964, 3091.9736068872485, 1735.8996224642933],
    "Gradient tracking ring": [4949.39533010964, 3092.5605894746177, 1736.3712807594952],
    "Gradient tracking tree": [4949.39533010964, 3100.211993471855, 1745.7607338542985],
    "RelaySum/Model chain": [5161.388271228426, 3773.319575590975, 2568.8534924865426],
    "RelaySum/Model tree": [5150.155401602008, 3649.4718178654653, 2395.8566015133642],
    "RelaySum/Grad chain": [5161.388271228426, 3231.665594726815, 1789.7526253086342],
    "RelaySum/Grad tree": [5150.155401602008, 3190.042413560431, 1772.7874232921215],
    "Gossip ring": [4949.39533010964, 3095.498290955015, 1742.300938780665],
    "Gossip tree": [4949.39533010964, 3103.662996882965, 1758.6060327709174],
    "All-reduce ring": [4949.39533010964, 3090.5036761616293, 1735.5612333783627],
}


@pytest.mark.parametrize("name", GOLDEN)
def test_errors_are_those_of_the_published_code(name):
    found = dict(trials(name, 4, 0, 0.01, 100).train(0.1, [1, 5, 10]))
    assert list(found.values()) == pytest.approx(GOLDEN[name], rel=1e-13)


# algorithm, heterogeneity, distance, search, steps and learning rate: records of the published logs.
RECORDS = [
    ("Gossip ring", 4, 0, 0.1, 10, 296, 0.0701904296875),
    ("Gossip tree", 8, 1, 0, 10, 10, 0.78125),
    ("RelaySum/Grad chain", 6, 2, 0.01, 10, 54, 0.29296875),
    ("RelaySum/Grad tree", 8, 3, 0.1, 10, 233, 0.0823974609375),
    ("All-reduce ring", 6, 0, 1, 100, 9, 0.78125),
    ("D2 ring", 6, 0, 0.01, 100, 19, 0.56640625),
    ("Gradient tracking tree", 6, 1, 1, 100, 130, 0.13671875),
    ("RelaySum/Model chain", 12, 2, 0.01, 100, 39, 0.83984375),
    ("SGP exponential", 4, 4, 0.01, 100, 10, 0.78125),
]


@pytest.mark.parametrize(("name", "workers", "seed", "heterogeneity", "distance", "steps", "lr"), RECORDS)
def test_searches_find_the_published_steps_and_rates(name, workers, seed, heterogeneity, distance, steps, lr):
    near = distance == 10
    kind = Settled if near and heterogeneity else Fastest
    search = kind(start=100 if near else 10, most_trials=25 if near else 30)
    trial = trials(name, workers, seed, heterogeneity, distance)
    search.run(lambda rate: trial.train(rate, measured_steps(20_000)))
    assert (search.steps, search.lr) == (steps, pytest.approx(lr, abs=1e-12))


# The training with the rate that was found


def test_noise_of_copies_adds_to_the_error_what_theory_says_and_the_first_copy_has_none():
    """An average over all workers, x <- x - lr (H x + noise / sqrt(n)), settles at lr sigma^2 / n d times the sum of
    1 / (2 - lr h) over the curvatures h: each direction's error is h lr^2 (sigma^2 / n d) / (1 - (1 - lr h)^2).
    """
    lr, sigma, (workers, copies) = 0.5, 0.3, (4, 400)
    noisy = trials("All-reduce ring", workers, 0, 0.1, 1, 1 + copies)
    noisy.noise = sigma
    [(_, [quiet, *errors])] = noisy.train_copies(lr, [100])
    assert dict(trials("All-reduce ring", workers, 0, 0.1, 1).train(lr, [100])) == {
        100: pytest.approx(quiet, abs=1e-14)
    }
    curvatures = torch.linalg.eigvalsh(noisy.curvatures.mean(0))
    expected = lr * sigma**2 / (workers * 10) * (1 / (2 - lr * curvatures)).sum().item()
    assert len(errors) == copies
    assert np.mean(errors) == pytest.approx(expected, rel=0.1)  # four standard errors


@pytest.mark.parametrize(("workers", "factor"), [(1, 1), (2, 1), (4, 1.497717521), (8, 2.749657769)])
def test_a_step_of_relaysum_on_a_chain_is_shortened_by_the_published_factor(workers, factor):
    assert _delay(RelaySum(topology="chain"), workers) == pytest.approx(factor, rel=1e-9)
