"""Mixing matrices: the weights with which workers' vectors are combined in one mixing step.

Convention: new = M @ old, so that M[r, s] is the weight of worker s's vector at worker r, and M[r, r] the self weight
of r. Columns sum to 1, which conserves the sum over the workers (Assran et al. 2019).
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from resync.base.errors import UserError
from resync.workers.formulas.topology import out_peers, resolve
from resync.workers.formulas.weighted_topology import WeightedTopology

__all__ = ["is_doubly_stochastic", "matrix", "reweighted"]


def matrix(topology: str, num_workers: int, k: int, peers: int = 1, seed: int = 0) -> NDArray[np.float64]:
    """Return the column-stochastic matrix [num_workers, num_workers] of mixing step `k`; [[1.]] for one worker.

    The self weight and those of the p out-peers are each 1 / (p + 1), unless the topology has weights of its own.
    Arguments and errors are those of `topology.out_peers`; `k` counts from the last change of `peers`.
    """
    chosen = resolve(topology)
    receivers = [out_peers(topology, worker, num_workers, k, peers, seed) for worker in range(max(num_workers, 1))]
    if isinstance(chosen, WeightedTopology):
        return _weighted_matrix(chosen.weights(num_workers, k, peers, seed))
    mixing = np.zeros((num_workers, num_workers))
    for worker, peers_of in enumerate(receivers):
        mixing[[worker, *peers_of], worker] = 1 / (1 + len(peers_of))
    return mixing


def is_doubly_stochastic(mixing: NDArray[np.float64], tolerance: float = 1e-12) -> bool:
    """Whether the rows sum to 1 too: then all push-sum weights stay 1 and need not be sent."""
    sums = np.concatenate([mixing.sum(axis=0), mixing.sum(axis=1)])
    return bool(np.all(np.abs(sums - 1) <= tolerance))


def reweighted(mixing: NDArray[np.float64], weight: float) -> NDArray[np.float64]:
    """The mixing matrix of the same messages, each with this weight; self weights are what is left of 1.

    Raises UserError where less than nothing is left.
    """
    changed = np.where(mixing > 0, weight, 0.0)
    np.fill_diagonal(changed, 0)
    most = np.count_nonzero(changed, axis=0).max()
    if most * weight > 1:
        raise UserError(f"weight: found {weight:g} for each of {most} neighbours, allowed: at most 1/{most}")
    np.fill_diagonal(changed, 1 - changed.sum(axis=0))
    return changed


def _weighted_matrix(weights: Sequence[Mapping[int, Fraction]]) -> NDArray[np.float64]:
    mixing = np.zeros((len(weights), len(weights)))
    for worker, sent in enumerate(weights):
        mixing[worker, worker] = float(1 - sum(sent.values()))
        for receiver, weight in sent.items():
            mixing[receiver, worker] = float(weight)
    return mixing
