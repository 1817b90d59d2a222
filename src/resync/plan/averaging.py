"""How fast gossip averages: what its mixing matrices do to the deviations from the mean, without any training."""

from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

from resync.config import Run
from resync.formulas.mixing import matrix
from resync.formulas.topology import resolve

DRAWS = 64
"""Over so many draws the error of a random topology is averaged."""


def averaging_errors(run: Run, mixes: int) -> NDArray[np.float64]:
    """Return what is left of deviations from the mean after 0..mixes mixes of the run's topology, [mixes + 1].

    The second largest eigenvalue of P^T P, with P the product of the mixing matrices so far: by at least this factor
    the summed squared distance of the workers' values from their mean has shrunk, whatever the values were. Of a random
    topology the mean over draws. (Assran et al. 2019, appendix on the choice of the graph.)

    Raises ValueError for a run without at least two workers that mix by one topology and number of peers.
    """
    traffic = run.sync.traffic
    if traffic is None or traffic.topology is None or len(traffic.peers) > 1 or run.workers == 1:
        raise ValueError(f"{run.id}: sync {run.sync.name} of {run.workers} workers has no mixes of one topology")
    draws = range(1 if resolve(traffic.topology).regular else DRAWS)
    [(_, peers)], weights = traffic.peers, traffic.mixing_weights
    return np.mean([_errors(traffic.topology, run.workers, peers, weights, mixes, seed) for seed in draws], axis=0)


def averaging_error(run: Run) -> float:
    """The error after ceil(log2 n) mixes for n workers; arguments and errors as for `averaging_errors`."""
    return float(averaging_errors(run, mixes_of(run.workers))[-1])


def mixes_of(workers: int) -> int:
    """ceil(log2 n): so many mixes of the exponential graph average n = 2^m workers exactly."""
    return ceil(log2(workers))


def _errors(
    topology: str, workers: int, peers: int, mixing_weights: tuple[float, ...] | None, mixes: int, seed: int
) -> NDArray[np.float64]:
    product, errors = np.eye(workers), [1.0]
    for k in range(mixes):
        product = matrix(topology, workers, k, peers, mixing_weights=mixing_weights, seed=seed) @ product
        errors.append(float(np.linalg.svd(product, compute_uv=False)[1] ** 2))
    return np.array(errors)
