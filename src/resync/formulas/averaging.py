"""Averaging by gossip without training: what a topology does to vectors, in one process and in float64."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from resync.formulas import mixing


@dataclass(frozen=True, eq=False)
class Averaging:
    """Vectors and push-sum weights of all workers before the first mix and after each one.

    Attributes:
        values: numerators, [iterations + 1, num_workers, d].
        weights: push-sum weights, [iterations + 1, num_workers].
    """

    values: NDArray[np.float64]
    weights: NDArray[np.float64]

    @property
    def debiased(self) -> NDArray[np.float64]:
        """The workers' estimates of the average: values / weights, [iterations + 1, num_workers, d]."""
        return self.values / self.weights[:, :, None]


def average(
    values: ArrayLike,
    topology: str | int,
    iterations: int,
    peers: int = 1,
    weights: ArrayLike | None = None,
    *,
    seed: int = 0,
) -> Averaging:
    """Mix `values` uniformly `iterations` times by push-sum (Assran et al. 2019, without any gradient).

    Args:
        values: the workers' vectors, [num_workers, d].
        topology: name or number, see resync.formulas.topology.
        iterations: number of mixes, numbered from 0.
        peers: workers that one worker sends to in one mix.
        weights: initial push-sum weights, [num_workers], all > 0; 1 if left out.
        seed: chooses the draws of a random topology.

    Raises:
        ValueError: a wrong shape or a value out of range; else as for resync.formulas.topology.out_peers.
    """
    start = np.asarray(values, dtype=np.float64)
    if start.ndim != 2 or len(start) == 0:
        raise ValueError(f"values have shape {list(start.shape)}, expected [num_workers, d]")
    num_workers = len(start)
    start_weights = np.ones(num_workers) if weights is None else np.asarray(weights, dtype=np.float64)
    if start_weights.shape != (num_workers,) or not np.all(start_weights > 0):
        raise ValueError(f"weights must be {num_workers} numbers > 0, one for each worker")
    if iterations < 0:
        raise ValueError(f"iterations is {iterations}, expected >= 0")

    # The weight travels as one more element of the vector, so both are mixed by the same numbers.
    states = np.empty((iterations + 1, num_workers, start.shape[1] + 1))
    states[0] = np.column_stack([start, start_weights])
    for k in range(iterations):
        states[k + 1] = mixing.matrix(topology, num_workers, k, peers, seed=seed) @ states[k]
    return Averaging(values=states[:, :, :-1], weights=states[:, :, -1])
