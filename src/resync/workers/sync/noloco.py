"""NoLoCo: an outer optimizer on averages of pairs, without any average over all workers."""

import torch

from resync.workers.sync.algorithm import Rounds, Training
from resync.workers.sync.mixes import MixingSteps
from resync.workers.sync.options import outer
from resync.workers.sync.outer import on_device


class NoLoCoAlgorithm(Rounds):
    """Low-communication training by gossip of the outer step (Kolehmainen et al. 2025, as in their code).

        for every round of H local steps of worker k, which starts at its anchor x_k, and a new pair {k, j}:
            D = mean over the pair of w - x,   X = mean over the pair of x       (w: after the local steps)
            v_k = momentum v_k + lr D + pull (X - x_k);   x_k = x_k + v_k;   w_k = x_k

    Momentum v stays with its worker. This is heavy ball, as in the code, although the paper speaks of Nesterov. Pairs
    are entries i and i + n/2 of a permutation that all workers draw from the seed and the number of the round; of an
    odd number of workers, which the original does not have, one takes its step alone. Random routing between pipeline
    stages, the paper's other part, is not here.
    """

    per_worker = ("anchors", "momenta")

    def __init__(self, training: Training, options: outer.NoLoCo) -> None:
        super().__init__(training, options.rule)
        self.options = options
        self.mixes = MixingSteps(options.traffic, self.transport.num_workers, self.seed)
        self.anchors = training.keep(self.rows)
        self.momenta = training.keep(torch.zeros_like(self.rows))

    @torch.no_grad()
    def end_round(self) -> None:
        mix = self.mixes.at(0, self.rounds)
        with on_device(self.rows.device, self.anchors, self.momenta) as (anchors, momenta):
            changes, pulls = self.rows - anchors, anchors.clone()
            for state in (changes, pulls):
                mix.apply(state, self.transport)
            pulls.sub_(anchors)
            momenta.mul_(self.options.momentum).add_(changes, alpha=self.options.lr)
            momenta.add_(pulls, alpha=self.options.pull)
            anchors.add_(momenta)
            self.rows.copy_(anchors)


build = NoLoCoAlgorithm
