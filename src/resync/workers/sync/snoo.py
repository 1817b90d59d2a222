"""SNOO: Nesterov momentum on what a round of data-parallel steps has changed, without averaging models."""

import torch

from resync.workers.sync.algorithm import Rounds, Training
from resync.workers.sync.options import outer
from resync.workers.sync.outer import on_device, outer_step_


class SNOOAlgorithm(Rounds):
    """Step-K Nesterov outer optimizer (Kallusky et al. 2025, arXiv 2510.15830).

        for every round of H steps, which starts at x:
            H optimizer steps from x to w, on gradients averaged over all workers
            D = x - w
            b = momentum b + D;   x = x - lr (D + momentum b)

    Workers stay equal, so the outer step needs no message; with one worker there is none at all. The paper is about one
    worker; several are one replica with data parallelism, as in the record of modded-nanogpt. Evaluation is at w, the
    fast weights, also within a round. MuLoCo with one worker (Thérien et al. 2025) is SNOO with Muon inside, Lookahead
    (Zhang et al. 2019) is SNOO without momentum.
    """

    per_worker = ("anchor", "buffer")

    def __init__(self, training: Training, options: outer.SNOO) -> None:
        super().__init__(training, options.rule)
        self.options = options
        self.anchor = training.keep(self.rows)
        self.buffer = training.keep(torch.zeros_like(self.rows))

    def after_backward(self) -> None:
        self.average_gradients()

    @torch.no_grad()
    def end_round(self) -> None:
        given = self.options
        with on_device(self.rows.device, self.anchor, self.buffer) as (anchor, buffer):
            change = anchor - self.rows
            outer_step_(anchor, buffer, change, lr=given.lr, momentum=given.momentum, nesterov=given.nesterov)
            self.rows.copy_(anchor)


build = SNOOAlgorithm
