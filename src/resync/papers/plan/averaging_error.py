"""The speed of averaging by gossip: how mixing matrices shrink deviations from the mean, without any training."""

from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

from resync.base.errors import UserError
from resync.runs.run import Run
from resync.workers.formulas.mixing import matrix
from resync.workers.formulas.rounding import without_noise
from resync.workers.formulas.topology import resolve

DRAWS = 64
"""Number of draws over which the error of a random topology is averaged."""


def averaging_errors(run: Run, mixes: int) -> NDArray[np.float64]:
    """Return the remaining deviation from the mean after 0..mixes mixing steps of the run's topology, [mixes + 1].

    It is the second largest eigenvalue of P^T P, where P is the product of the mixing matrices so far: for any initial
    values, the summed squared distance of the workers' values from their mean shrinks at least by this factor. For a
    random topology it is the mean over draws. (Assran et al. 2019, appendix on the choice of the graph.)

    Raises ValueError unless the run has at least two workers that mix with one topology and one number of peers.
    """
    traffic = run.sync.traffic
    if traffic is None or traffic.topology is None or len(traffic.peers) > 1 or run.workers == 1:
        raise UserError(f"{run.id}: sync {run.sync.name} of {run.workers} workers does not mix with one topology")
    draws = range(DRAWS if resolve(traffic.topology).random else 1)
    [(_, peers)] = traffic.peers
    return np.mean([_errors(traffic.topology, run.workers, peers, mixes, seed) for seed in draws], axis=0)


def averaging_error(run: Run) -> float:
    """The error after ceil(log2 n) mixing steps of n workers; arguments and errors as in `averaging_errors`."""
    return float(averaging_errors(run, mixes_of(run.workers))[-1])


def mixes_of(workers: int) -> int:
    """ceil(log2 n), the number of mixing steps in which the exponential graph averages n = 2^m workers exactly."""
    return ceil(log2(workers))


def _errors(topology: str, workers: int, peers: int, mixes: int, seed: int) -> NDArray[np.float64]:
    product, errors = np.eye(workers), [1.0]
    for k in range(mixes):
        product = matrix(topology, workers, k, peers, seed) @ product
        largest, second, *_ = map(float, np.linalg.svd(product, compute_uv=False))
        errors.append(without_noise(second, largest) ** 2)
    return np.array(errors)
