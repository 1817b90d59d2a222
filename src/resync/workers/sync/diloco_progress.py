"""An ablation of our own: DiLoCo with a correction for rounds of unequal progress."""

import torch

from resync.workers.sync.algorithm import Training
from resync.workers.sync.diloco import DiLoCoAlgorithm
from resync.workers.sync.options import outer
from resync.workers.sync.outer import on_device, outer_step_


class DiLoCoProgressAlgorithm(DiLoCoAlgorithm):
    """DiLoCo whose outer step is in units of progress p, so that a long round counts as several short ones.

        p = sum of the learning rates of the round's steps / reference
        D = (x - mean over k of x_k) / p
        b = momentum^p b + D;   x = x - lr p (D + momentum^p b)

    The buffer then holds a change per unit of progress, and forgets per unit of progress, whatever H is. p = 1 is
    DiLoCo. This is not a published method: it separates what QSR's long rounds do under an outer optimizer from what
    momentum and step size that ignore their length do.
    """

    shared = ("progress",)

    def __init__(self, training: Training, options: outer.DiLoCoProgress) -> None:
        super().__init__(training, options)
        self.reference = options.reference
        self.progress = 0.0

    @property
    def outer_step_follows_lr(self) -> bool:
        return True

    def after_step(self, lr: float) -> bool:
        self.progress += lr
        return super().after_step(lr)

    @torch.no_grad()
    def end_round(self) -> None:
        """Average over the workers, and take the outer step; a round without progress has none."""
        self.synchronise()
        with on_device(self.rows.device, self.anchor, self.buffer) as (anchor, buffer):
            if p := self.progress / self.reference:
                lr, momentum, nesterov = self.options.lr * p, self.options.momentum**p, self.options.nesterov
                change = (anchor - self.rows[:1]).div_(p)
                outer_step_(anchor, buffer, change, lr=lr, momentum=momentum, nesterov=nesterov)
            self.rows.copy_(anchor.expand_as(self.rows))
        self.progress = 0.0


build = DiLoCoProgressAlgorithm
