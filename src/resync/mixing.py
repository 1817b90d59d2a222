"""Mixing matrices: which share of whose vector ends up where in one mix.

Convention: new = M @ old, so M[r, s] is the share of rank s's vector that arrives at rank r, and M[r, r] the
share that r keeps. Columns sum to 1: nothing is lost, the sum over ranks is conserved (Assran et al. 2019).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from resync.topology import out_peers


def matrix(
    topology: str | int,
    world_size: int,
    k: int,
    peers: int = 1,
    *,
    shares: ArrayLike | None = None,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Return the column-stochastic matrix [world_size, world_size] of mix number `k`; [[1.]] for one worker.

    Args:
        topology: name or number, see resync.topology.
        world_size: number of workers.
        k: mix number, 0-based, counted since the start or since `peers` was last changed.
        peers: ranks that one rank sends to in one mix.
        shares: what a rank keeps and sends, as [p + 1] for all ranks or [world_size, p + 1]: first the share
            that it keeps, then those of its out-peers in their order, with sum 1. Left out: 1 / (p + 1) each.
        seed: chooses the draws of a random topology.

    Raises:
        ValueError: shares of a wrong shape, below 0 or with another sum than 1; else as for `out_peers`.
    """
    receivers = [out_peers(topology, rank, world_size, k, peers, seed) for rank in range(max(world_size, 1))]
    num_shares = 1 + len(receivers[0])
    if shares is None or num_shares == 1:
        shares = np.full(num_shares, 1 / num_shares)
    mixing = np.zeros((world_size, world_size))
    for rank, row in enumerate(_checked(shares, world_size, num_shares)):
        mixing[[rank, *receivers[rank]], rank] = row
    return mixing


def is_doubly_stochastic(mixing: NDArray[np.float64], tolerance: float = 1e-12) -> bool:
    """Whether rows sum to 1 like columns: then all push-sum weights stay 1 and need not be sent."""
    sums = np.concatenate([mixing.sum(axis=0), mixing.sum(axis=1)])
    return bool(np.all(np.abs(sums - 1) <= tolerance))


def _checked(shares: ArrayLike, world_size: int, num_shares: int) -> NDArray[np.float64]:
    """Return the shares as [world_size, num_shares]."""
    table = np.asarray(shares, dtype=np.float64)
    if table.shape not in ((num_shares,), (world_size, num_shares)):
        raise ValueError(
            f"shares have shape {list(table.shape)}, expected [{num_shares}] or "
            f"[{world_size}, {num_shares}]: what a rank keeps, then one share for each of its out-peers"
        )
    if not (np.all(table >= 0) and np.allclose(table.sum(axis=-1), 1, rtol=0, atol=1e-12)):
        raise ValueError("shares must be >= 0 and sum to 1 for every rank: nothing may be lost")
    return np.broadcast_to(table, (world_size, num_shares))
