"""Mixing matrices: the weights with which workers' vectors are combined in one mixing step.

Convention: new = M @ old, so that M[r, s] is the weight of worker s's vector at worker r, and M[r, r] the self weight
of r. Columns sum to 1, which conserves the sum over the workers (Assran et al. 2019).
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from resync.base.errors import UserError
from resync.workers.formulas.topology import out_peers, resolve
from resync.workers.formulas.weighted_topology import WeightedTopology

__all__ = ["is_doubly_stochastic", "matrix"]


def matrix(
    topology: str,
    num_workers: int,
    k: int,
    peers: int = 1,
    *,
    mixing_weights: ArrayLike | None = None,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Return the column-stochastic matrix [num_workers, num_workers] of mixing step `k`; [[1.]] for one worker.

    `mixing_weights` are [p + 1] for all workers, or [num_workers, p + 1]: first the self weight, then the weights of
    the out-peers in their order, with sum 1. If omitted, each is 1 / (p + 1). Not for a topology that has weights of
    its own. The other arguments are those of `topology.out_peers`; `k` counts from the last change of `peers`.

    Raises ValueError for mixing_weights of a wrong shape, below 0 or with a sum other than 1, and as in `out_peers`.
    """
    chosen = resolve(topology)
    if chosen.weighted and mixing_weights is not None:
        raise UserError(f"topology {topology} has weights of its own: found mixing_weights, omit them")
    receivers = [out_peers(topology, worker, num_workers, k, peers, seed) for worker in range(max(num_workers, 1))]
    if isinstance(chosen, WeightedTopology):
        return _weighted_matrix(chosen.weights(num_workers, k, peers, seed))
    num_weights = 1 + len(receivers[0])
    if mixing_weights is None or num_weights == 1:
        mixing_weights = np.full(num_weights, 1 / num_weights)
    mixing = np.zeros((num_workers, num_workers))
    for worker, row in enumerate(_check_weights(mixing_weights, num_workers, num_weights)):
        mixing[[worker, *receivers[worker]], worker] = row
    return mixing


def is_doubly_stochastic(mixing: NDArray[np.float64], tolerance: float = 1e-12) -> bool:
    """Whether the rows sum to 1 too: then all push-sum weights stay 1 and need not be sent."""
    sums = np.concatenate([mixing.sum(axis=0), mixing.sum(axis=1)])
    return bool(np.all(np.abs(sums - 1) <= tolerance))


def _weighted_matrix(weights: Sequence[Mapping[int, Fraction]]) -> NDArray[np.float64]:
    mixing = np.zeros((len(weights), len(weights)))
    for worker, sent in enumerate(weights):
        mixing[worker, worker] = float(1 - sum(sent.values()))
        for receiver, weight in sent.items():
            mixing[receiver, worker] = float(weight)
    return mixing


def _check_weights(mixing_weights: ArrayLike, num_workers: int, num_weights: int) -> NDArray[np.float64]:
    """Return the mixing weights as [num_workers, num_weights]."""
    table = np.asarray(mixing_weights, dtype=np.float64)
    if table.shape not in ((num_weights,), (num_workers, num_weights)):
        raise UserError(
            f"mixing_weights have shape {list(table.shape)}, expected [{num_weights}] or "
            f"[{num_workers}, {num_weights}]: the self weight, then one weight for each out-peer"
        )
    if not (np.all(table >= 0) and np.allclose(table.sum(axis=-1), 1, rtol=0, atol=1e-12)):
        raise UserError("mixing_weights must be >= 0 and sum to 1 for every worker, to conserve the workers' sum")
    return np.broadcast_to(table, (num_workers, num_weights))
