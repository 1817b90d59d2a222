"""How fast gossip averages, against gossip itself."""

import os
import subprocess
import sys

import averaging
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_plan import a_run

from resync.papers.plan.averaging_error import DRAWS, averaging_error, averaging_errors
from resync.workers.formulas.topology import TOPOLOGIES

REGULAR = [name for name, topology in TOPOLOGIES.items() if topology.regular and not topology.random]


def mixing_run(topology, workers, **options):
    return a_run(workers=workers, batch_size=8 * workers, sync={"name": "sgp", "topology": topology, **options})


def deviation(values):
    """Summed squared distance from the mean."""
    return ((values - values.mean(axis=0)) ** 2).sum()


@given(st.sampled_from(REGULAR), st.integers(1, 8), st.integers(0, 100))
def test_no_values_stay_further_apart_than_the_error_and_some_stay_as_far(name, half, seed):
    workers, mixes = 2 * half if name != "hypercube" else 16, 6
    errors = averaging_errors(mixing_run(name, workers), mixes)
    values = averaging.average(np.random.default_rng(seed).normal(size=(workers, 3)), name, mixes).values
    for k in range(mixes + 1):
        assert deviation(values[k]) <= errors[k] * deviation(values[0]) + 1e-12
    # What P^T P does to its second eigenvector; the columns of `product` are the vectors of an identity, mixed.
    product = averaging.average(np.eye(workers), name, mixes).values[mixes]
    worst = np.linalg.svd(product)[2][1]
    assert deviation((product @ worst)[:, None]) == pytest.approx(errors[mixes], abs=1e-9)


def test_two_peers_do_not_average_exactly_on_either_exponential_graph():
    """Second eigenvalues for 32 workers after 4 and 5 mixes, from the fact sheet on the original graphs."""
    for name, expected in (("directed_exponential", [0.063, 0.012]), ("exponential", [0.016, 0.015])):
        errors = averaging_errors(mixing_run(name, 32, peers=2), 5)
        assert errors[-2:] == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("topology", ["exponential", "directed_exponential", "hypercube", "base_graph"])
@pytest.mark.parametrize("workers", [8, 16, 32, 64])
def test_an_exact_average_leaves_nothing(topology, workers):
    errors = averaging_errors(mixing_run(topology, workers, peers=1), 12)
    assert errors[5] > 0 or workers < 64
    assert set(errors[6:]) == {0}


def test_other_kernels_of_the_processor_give_the_same_zeros():
    """The second singular value of an exact average has other digits with each of them."""
    run = mixing_run("exponential", 32, peers=1)
    code = "import sys; from resync.runs.run import Run; from resync.papers.plan.averaging_error import *\n"
    code += "print(*averaging_errors(Run.model_validate_json(sys.stdin.read()), 8).tolist())"
    variables = os.environ | {"OPENBLAS_CORETYPE": "Nehalem"}
    there = subprocess.run(
        [sys.executable, "-c", code], input=run.model_dump_json(), env=variables, capture_output=True, text=True
    )
    errors = [float(each) for each in there.stdout.split()]
    assert errors == pytest.approx(averaging_errors(run, 8).tolist(), rel=1e-9, abs=0), there.stderr
    assert errors[5:] == [0, 0, 0, 0]


def test_a_random_graph_has_the_mean_over_draws():
    values = np.random.default_rng(0).normal(size=(16, 64))
    left = [deviation(averaging.average(values, "random", 4, seed=seed).values[4]) for seed in range(DRAWS)]
    assert 0 < np.mean(left) / deviation(values) < averaging_error(mixing_run("random", 16)) < 1


@pytest.mark.parametrize("options", [{"topology": "exponential", "peers": [[0, 0], [10, 1]]}, {"workers": 1}])
def test_there_is_an_error_only_where_workers_mix_by_one_topology(options):
    with pytest.raises(ValueError, match="does not mix with one topology"):
        averaging_error(mixing_run(**{"topology": "exponential", "workers": 4} | options))
    with pytest.raises(ValueError, match=r"vit_b16_b4096.*sync local of 16 workers does not mix with one topology"):
        averaging_error(a_run())
