"""Gradient tracking: gossip of the parameters and of an estimate of the mean gradient."""

from typing import ClassVar

import torch

from resync.workers.sync.algorithm import Algorithm, Training
from resync.workers.sync.mixes import MixingSteps
from resync.workers.sync.options import GradientTracking


class GradientTrackingAlgorithm(Algorithm):
    """A step along an estimate of the mean gradient; then parameters and estimate are mixed.

        y_r = g_r(x_r) - c_r;   x_r = sum over s of W[r, s] optimizer(x_s, y_s);   c_r = g_r - sum over s of W[r, s] y_s

    W is the mixing matrix, and c is 0 at the start, so that y(0) = g(0) and y(t+1) = W y(t) + g(t+1) - g(t): the mean
    of y is always that of g. This is the form of Vogels et al. (2021); the optimizer is that of each worker, of which
    Lorenzo and Scutari (2016) and Nedic et al. (2017) have SGD without momentum.
    """

    per_worker: ClassVar[tuple[str, ...]] = ("corrections",)
    changes_gradients = True

    def __init__(self, training: Training, options: GradientTracking) -> None:
        super().__init__(training)
        self.mixes = MixingSteps(options.traffic, self.transport.num_workers, self.seed)
        self.corrections = torch.zeros_like(self.rows)
        self._estimates = torch.zeros_like(self.rows)

    @torch.no_grad()
    def after_backward(self) -> None:
        """Replace the gradient by the estimate of the mean."""
        gradients = self.workers.grads
        torch.sub(gradients, self.corrections, out=self._estimates)
        self.corrections.copy_(gradients)
        gradients.copy_(self._estimates)

    @torch.no_grad()
    def after_step(self, lr: float) -> bool:
        mix = self.mixes.at(self.steps)
        for state in (self.rows, self._estimates):
            mix.apply(state, self.transport)
        self.corrections.sub_(self._estimates)
        return super().after_step(lr)


build = GradientTrackingAlgorithm
