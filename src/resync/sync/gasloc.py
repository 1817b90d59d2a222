"""GASLoC: gossip between the descent and the momentum of the outer optimizer."""

import torch

from resync.sync.algorithm import Training
from resync.sync.mixes import MixingSteps
from resync.sync.options import outer
from resync.sync.rounds import Rounds


class GASLoC(Rounds):
    """Gossip around the outer optimizer (arXiv 2606.11081; from quotations, which leave open whose momentum it is).

        for every round of H local steps of worker k, which starts at x_k, and a new graph of pairs:
            y_k = x_k + lr (w_k - x_k)                                       (w: after the local steps)
            z_k = y_k - mixing * sum over the peers j of (y_k - y_j)
            x_k = z_k + momentum (z_k - z_k of the last round);   w_k = x_k

    With `momentum_of` "own" it is y in place of z that momentum extrapolates. On the complete graph with mixing 1/2,
    which stands for the average over all workers, the first is DiLoCo; with the second only the mean over the workers
    is, and they stay apart. Graphs other than of pairs, with the matrix M, have z = y - 2 mixing (y - M y).
    """

    per_worker = ("anchors", "last")

    def __init__(self, training: Training, options: outer.GASLoC) -> None:
        super().__init__(training, options.rule)
        self.options = options
        self.mixes = MixingSteps(options.traffic, self.transport.num_workers, self.seed)
        self.anchors = self.rows.clone()
        self.last = self.rows.clone()

    @torch.no_grad()
    def end_round(self) -> None:
        """Descend, exchange with the peer, and extrapolate."""
        own = self.anchors.lerp(self.rows, self.options.lr)
        mixed = own.clone()
        self.mixes.at(0, self.rounds).apply(mixed, self.transport)
        mixed = own.lerp(mixed, 2 * self.options.mixing)
        extrapolated = mixed if self.options.momentum_of == "mixed" else own
        torch.add(mixed, extrapolated - self.last, alpha=self.options.momentum, out=self.anchors)
        self.last.copy_(extrapolated)
        self.rows.copy_(self.anchors)


build = GASLoC
