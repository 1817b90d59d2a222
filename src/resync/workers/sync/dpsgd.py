"""Decentralised parallel SGD."""

import numpy as np

from resync.base.errors import UserError
from resync.workers.formulas import mixing
from resync.workers.formulas.topology import cycle
from resync.workers.sync.algorithm import Training
from resync.workers.sync.options import gossip
from resync.workers.sync.sgp import SGPAlgorithm


class DPSGDAlgorithm(SGPAlgorithm):
    """Symmetric gossip: a step, then a mixing step (Lian et al. 2017, as compared in Assran et al. 2019).

        y_r = optimizer(x_r, g_r(x_r));   x_r = mean of y_r and of the y of its peers

    or the weighted mean, where a topology has weights of its own. Every worker receives from exactly the workers that
    it sends to, so the mixing matrix is symmetric and doubly stochastic and needs no push-sum weights. On a bipartite
    graph with one peer, mixing is the average of a pair. With `half_duplex`, odd workers send first and even ones
    answer, which takes twice as long and gives the same average.

    Raises ValueError for a topology that is not symmetric with this number of workers and peers.
    """

    def __init__(self, training: Training, options: gossip.DPSGD) -> None:
        super().__init__(training, options)
        topology, size = options.topology, self.transport.num_workers
        for number in (number for _, number in options.phases if number):
            for k in range(cycle(topology, size, number) or 1):
                matrix = mixing.matrix(topology, size, k, number, seed=self.seed)
                if not (np.array_equal(matrix, matrix.T) and mixing.is_doubly_stochastic(matrix)):
                    raise UserError(
                        f"D-PSGD needs symmetric mixing, which topology {topology} with {size} workers and {number} "
                        "peers does not give, allowed: ring with 2 peers, or another topology"
                    )


build = DPSGDAlgorithm
