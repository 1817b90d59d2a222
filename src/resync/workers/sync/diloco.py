"""DiLoCo: rounds of local steps, and Nesterov momentum on their average."""

from typing import ClassVar

import torch

from resync.workers.sync.algorithm import Rounds, Training
from resync.workers.sync.options import outer
from resync.workers.sync.outer import on_device, outer_step_


class DiLoCoAlgorithm(Rounds):
    """Local steps and an outer optimizer (Douillard et al. 2023, Algorithm 1).

        for every round of H steps, which starts at x on every worker:
            every worker: H optimizer steps from x to x_k, on its own gradients
            D = x - mean over k of x_k
            b = momentum b + D;   x = x - lr (D + momentum b)

    With `compression` D is the mean of the x - x_k as they arrive, each rounded to fewer bits by its worker. The inner
    optimizer's state stays with its worker and is never reset.
    """

    shared: ClassVar[tuple[str, ...]] = ("anchor", "buffer")

    def __init__(self, training: Training, options: outer.OuterOptions) -> None:
        super().__init__(training, options.rule)
        self.options = options
        self.compression = options.compression if isinstance(options, outer.DiLoCo) else None
        # All workers have the same anchor and buffer: one copy per process.
        self.anchor = training.keep(self.rows[:1])
        self.buffer = training.keep(torch.zeros_like(self.rows[:1]))

    @torch.no_grad()
    def end_round(self) -> None:
        with on_device(self.rows.device, self.anchor, self.buffer) as (anchor, buffer):
            if self.compression:
                change = self.transport.packed_mean(anchor - self.rows, self.compression).unsqueeze(0)
            else:
                self.synchronise()
                change = anchor - self.rows[:1]
            given = self.options
            outer_step_(anchor, buffer, change, lr=given.lr, momentum=given.momentum, nesterov=given.nesterov)
            self.rows.copy_(anchor.expand_as(self.rows))


build = DiLoCoAlgorithm
