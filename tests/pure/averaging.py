"""Gossip averaging of vectors without training, in one process and in float64."""

from typing import NamedTuple

import numpy as np

from resync.workers.formulas import mixing


class Averaging(NamedTuple):
    """Numerators [steps + 1, n, d] and push-sum weights [steps + 1, n], before the first mixing step and after each."""

    values: np.ndarray
    weights: np.ndarray


def average(values, topology, steps, peers=1, weights=None, *, seed=0) -> Averaging:
    """Average `values` [n, d] by push-sum mixing steps; the weight is one more element of the vector."""
    states = [np.column_stack([values, np.ones(len(values)) if weights is None else weights])]
    for k in range(steps):
        states.append(mixing.matrix(topology, len(values), k, peers, seed=seed) @ states[k])
    return Averaging(np.stack(states)[:, :, :-1], np.stack(states)[:, :, -1])
