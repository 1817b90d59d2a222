"""Gossip averaging of vectors without training, in one process and in float64."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from resync.errors import UserError
from resync.formulas import mixing

__all__ = ["Averaging", "average"]


@dataclass(frozen=True, eq=False)
class Averaging:
    """Vectors and push-sum weights of all workers before the first mixing step and after each one.

    Attributes:
        values: numerators, [iterations + 1, num_workers, d].
        weights: push-sum weights, [iterations + 1, num_workers].
    """

    values: NDArray[np.float64]
    weights: NDArray[np.float64]

    @property
    def debiased(self) -> NDArray[np.float64]:
        return self.values / self.weights[:, :, None]


def average(
    values: ArrayLike, topology: str | int, iterations: int, peers: int = 1, weights: ArrayLike | None = None,
    *, seed: int = 0,
) -> Averaging:  # fmt: skip
    """Average `values` by `iterations` push-sum mixing steps with uniform weights (Assran et al. 2019, no gradients).

    `values` are the workers' vectors, [num_workers, d], and `weights` their initial push-sum weights, [num_workers],
    all > 0; 1 if omitted. The other arguments are those of `resync.topology.out_peers`.

    Raises ValueError for a wrong shape or a value out of range, and as in `out_peers`.
    """
    start = np.asarray(values, dtype=np.float64)
    if start.ndim != 2 or len(start) == 0:
        raise UserError(f"values have shape {list(start.shape)}, expected [num_workers, d]")
    num_workers = len(start)
    start_weights = np.ones(num_workers) if weights is None else np.asarray(weights, dtype=np.float64)
    if start_weights.shape != (num_workers,) or not np.all(start_weights > 0):
        raise UserError(f"weights must be {num_workers} numbers > 0, one for each worker")
    if iterations < 0:
        raise UserError(f"iterations is {iterations}, expected >= 0")

    # The push-sum weight is one more element of the vector, so that both are mixed by the same numbers.
    states = np.empty((iterations + 1, num_workers, start.shape[1] + 1))
    states[0] = np.column_stack([start, start_weights])
    for k in range(iterations):
        states[k + 1] = mixing.matrix(topology, num_workers, k, peers, seed=seed) @ states[k]
    return Averaging(values=states[:, :, :-1], weights=states[:, :, -1])
