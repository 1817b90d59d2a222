"""Stochastic Gradient Push."""

from typing import ClassVar

import torch
from torch import Tensor

from resync.workers.sync.algorithm import Algorithm, Training
from resync.workers.sync.fields import field
from resync.workers.sync.mixes import MixingSteps
from resync.workers.sync.options import gossip


class SGPAlgorithm(Algorithm):
    """Synchronous push-sum gossip: a step, then a mixing step (Assran et al. 2019, Algorithm 1).

        y_r = optimizer(x_r, g_r(z_r));   x_r = sum over s of M[r, s] y_s;   w_r likewise;   z_r = x_r / w_r

    M is the mixing matrix of this step. Every worker sends its row to its out-peers, which change from one mixing step
    to the next. The optimizer updates the numerators x; gradients are computed at the de-biased z, which `rows` are
    between two steps. If M is doubly stochastic, as on every regular topology with uniform weights, all push-sum
    weights w stay 1 and are not sent. With several `mixing_steps`, M is their product.

    The fields of the optimizer's state that `average_state` names travel with the parameters:

        m_r = sum over s of M[r, s] m_s

    With SGD's momentum this is the double averaging of Yu et al. (2019, "On the linear speedup analysis of
    communication efficient momentum SGD"), with gossip in place of an exact average as in Wang et al. (2020, section
    3). Momentum is a numerator like x, from which it is subtracted, so it has the weights of x and is never de-biased.

    Raises ValueError in the first step if the optimizer does not have a named field.
    """

    per_worker: ClassVar[tuple[str, ...]] = ("weights",)

    def __init__(self, training: Training, options: gossip.GossipOptions) -> None:
        super().__init__(training)
        of_sgp = options if isinstance(options, gossip.SGP) else gossip.SGP()
        self.average_state, self.mixing_steps = of_sgp.average_state, of_sgp.mixing_steps or 1
        self.mixes = MixingSteps(options.traffic, self.transport.num_workers, self.seed)
        self.weights_change = not self.mixes.doubly_stochastic
        self.weights = torch.ones(self.workers.num_local, 1, dtype=torch.float64, device=self.rows.device)

    @property
    def one_gradient(self) -> bool:
        return self.weights_change

    def after_backward(self) -> None:
        """x = w z."""
        if self.weights_change:
            self.rows.mul_(self.weights.to(self.rows))

    @torch.no_grad()
    def after_step(self, lr: float) -> bool:
        """Mix x, and w if it changes, with those of this step's in-peers; then z = x / w."""
        first, _ = self.mixes.phase(self.steps)
        for k in range(self.mixing_steps):
            mix = self.mixes.at(self.steps, (self.steps - first) * self.mixing_steps + k)
            for state in self.states:
                mix.apply(state, self.transport)
            for name in self.average_state:
                with field(self.workers, self.optimizer, name) as values:
                    mix.apply(values, self.transport)
        self.debias()
        return super().after_step(lr)

    def debias(self) -> None:
        """z = x / w."""
        # OSGP's weights come back to 1 with every message. To know it a GPU would have to be waited for.
        if self.weights_change and not (self.weights.is_cpu and all(weight == 1 for [weight] in self.weights.tolist())):
            self.rows.div_(self.weights.to(self.rows))

    @property
    def states(self) -> list[Tensor]:
        """The tensors that are mixed, between `after_backward` and `debias`."""
        return [self.rows, self.weights] if self.weights_change else [self.rows]

    def to_consensus(self, rows: Tensor) -> None:
        """The mean of x = w z, because the weights sum to K."""
        if self.weights_change:
            rows.mul_(self.weights.to(rows))
        self.transport.mean_(rows)

    def synchronise(self) -> None:
        """Give every worker the consensus with weight 1, and de-bias the state that travels."""
        self.to_consensus(self.rows)
        for name in self.average_state if self.weights_change and self.steps else ():
            with field(self.workers, self.optimizer, name) as values:
                values.div_(self.weights.to(values))
        self.weights.fill_(1)


build = SGPAlgorithm
