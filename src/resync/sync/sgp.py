"""Stochastic Gradient Push."""

from typing import ClassVar

import torch
from torch import Tensor

from resync.sync.algorithm import Algorithm, Training
from resync.sync.mixes import MixingSteps
from resync.sync.options._gossip import GossipOptions


class SGP(Algorithm):
    """Synchronous push-sum gossip: a step, then a mixing step (Assran et al. 2019, Algorithm 1).

        y_r = optimizer(x_r, g_r(z_r));   x_r = sum over s of M[r, s] y_s;   w_r likewise;   z_r = x_r / w_r

    M is the mixing matrix of this step. Every worker sends its row to its out-peers, which change from one mixing step
    to the next. The optimizer updates the numerators x; gradients are computed at the de-biased z: `rows` holds z from
    `before_forward` to `after_backward` and x otherwise. If M is doubly stochastic, as on every regular topology with
    uniform weights, all push-sum weights stay 1 and are not sent.
    """

    shared: ClassVar[tuple[str, ...]] = ("debiased",)
    per_worker: ClassVar[tuple[str, ...]] = ("weights",)

    def __init__(self, training: Training, options: GossipOptions) -> None:
        super().__init__(training)
        self.mixes = MixingSteps(options.traffic, self.transport.num_workers, self.seed)
        self.weights = torch.ones(self.workers.num_local, 1, dtype=torch.float64, device=self.rows.device)
        self.weights_change = not self.mixes.doubly_stochastic
        self.debiased = False

    def before_forward(self) -> None:
        """z = x / w."""
        if self.weights_change:
            self.rows.div_(self.weights.to(self.rows))
            self.debiased = True

    def after_backward(self) -> None:
        """x = w z."""
        if self.debiased:
            self.rows.mul_(self.weights.to(self.rows))
            self.debiased = False

    @torch.no_grad()
    def after_step(self, lr: float) -> bool:
        """Mix the numerators, and the weights if they change, with those of this step's in-peers."""
        for state in self.states:
            self.mixes.at(self.steps).apply(state, self.transport)
        return super().after_step(lr)

    @property
    def states(self) -> list[Tensor]:
        """The tensors that are mixed."""
        return [self.rows, self.weights] if self.weights_change else [self.rows]

    def own_rows(self) -> Tensor:
        """z = x / w; messages in flight belong to nobody."""
        return self.rows / self.weights.to(self.rows) if self.weights_change and not self.debiased else self.rows

    def to_consensus(self, rows: Tensor) -> None:
        """The mean of the numerators, because the weights sum to K."""
        if self.debiased:
            rows.mul_(self.weights.to(rows))
        self.transport.mean_(rows)

    def synchronise(self) -> None:
        """Give every worker the consensus with weight 1."""
        self.after_backward()
        self.transport.mean_(self.rows)
        self.weights.fill_(1)


build = SGP
