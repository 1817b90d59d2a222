"""D2: gossip without the bias of different data."""

from typing import ClassVar

import torch

from resync.workers.sync.algorithm import Algorithm, Training
from resync.workers.sync.mixes import MixingSteps
from resync.workers.sync.options import D2


class D2Algorithm(Algorithm):
    """A step, to which the change by the last mixing step is added before the next one (Tang et al. 2018).

        y_r = optimizer(x_r, g_r(x_r));   x+_r = sum over s of W[r, s] (y_s + c_s);   c_r = x+_r - y_r;   x_r = x+_r

    W is the mixing matrix, and c is 0 at the start. With SGD without momentum this is the form of the paper,
    x(t+1) = W (2 x(t) - x(t-1) - lr (g(t) - g(t-1))), while the learning rate does not change; with another optimizer
    the same correction is made to whatever its step is. The smallest eigenvalue of W must be above -1/3: trees have
    smaller ones, and there D2 may diverge.
    """

    per_worker: ClassVar[tuple[str, ...]] = ("corrections",)

    def __init__(self, training: Training, options: D2) -> None:
        super().__init__(training)
        self.mixes = MixingSteps(options.traffic, self.transport.num_workers, self.seed)
        self.corrections = torch.zeros_like(self.rows)

    @torch.no_grad()
    def after_step(self, lr: float) -> bool:
        stepped = self.rows.clone()
        self.rows.add_(self.corrections)
        self.mixes.at(self.steps).apply(self.rows, self.transport)
        torch.sub(self.rows, stepped, out=self.corrections)
        return super().after_step(lr)


build = D2Algorithm
