"""Stochastic Gradient Push."""

from typing import Any

import torch
from torch import Tensor

from resync.sync.algorithm import Algorithm, Training
from resync.sync.mixes import Mix, keeps_weights, mix_at
from resync.sync.options._gossip import PushSumOptions


class Gossip(Algorithm):
    """What synchronous and overlapped push-sum share: numerators x, weights w, and which mix is due.

    The optimizer steps on the numerators x; gradients are taken at the de-biased z = x / w. `rows` holds z from
    `before_forward` to `after_backward` and x otherwise.

    `peers` is a number, or phases (first step, number) that change it in the course of training; 0 stands for an
    average over all workers after every step. At a change mixes are counted anew and everything that depends on the
    number is chosen anew with it, so the sums of x and w stay what they were.

    Raises ValueError for a topology, number of peers or mixing weights that do not fit the number of workers.
    """

    def __init__(self, training: Training, options: PushSumOptions) -> None:
        super().__init__(training)
        self.topology = options.topology
        self.phases = options.phases
        self.mixing_weights = options.weights
        self.mixes = 0
        self.debiased = False
        self.num_peers = self.phases[0][1]
        self.weights = torch.ones(self.workers.num_local, 1, dtype=torch.float64, device=self.rows.device)
        # Evaluated now also so that what cannot work fails before the training.
        self.keeps_weights = all(
            keeps_weights(self.topology, self.transport.num_workers, number, self.mixing_weights)
            for _, number in self.phases
            if number
        )

    @property
    def states(self) -> list[Tensor]:
        """What is mixed: the numerators, and the weights where they change."""
        return [self.rows] if self.keeps_weights else [self.rows, self.weights]

    def before_forward(self) -> None:
        """From numerators to de-biased parameters."""
        self._begin_phase()
        self._debias()

    def after_backward(self) -> None:
        """From de-biased parameters back to numerators."""
        if self.debiased:
            self.rows.mul_(self.weights.to(self.rows))
            self.debiased = False

    def _debias(self) -> None:
        if not self.keeps_weights:
            self.rows.div_(self.weights.to(self.rows))
            self.debiased = True

    def _begin_phase(self) -> None:
        number = next(number for first, number in reversed(self.phases) if first <= self.steps)
        if number != self.num_peers:
            self._end_phase()
            self.num_peers, self.mixes = number, 0

    def _end_phase(self) -> None:
        """Nothing of the old phase may be on its way in the new one."""

    def _next_mix(self) -> Mix:
        self.mixes += 1
        return self._last_mix()

    def _last_mix(self) -> Mix:
        number = self.mixes - 1
        return mix_at(self.topology, self.transport.num_workers, number, self.num_peers, self.mixing_weights, self.seed)

    def _average(self) -> None:
        """The mix of a phase without topology."""
        for state in self.states:
            self.transport.mean_(state)

    def _to_consensus(self, rows: Tensor) -> None:
        """The mean of the numerators and of what is on its way: the weights sum to K."""
        if self.debiased:
            rows.mul_(self.weights.to(rows))
        self._add_on_the_way(rows)
        self.transport.mean_(rows)

    def _add_on_the_way(self, rows: Tensor) -> None:
        """Add what workers have sent and nobody has taken yet; synchronous gossip has none."""

    def synchronise(self) -> None:
        """Give every worker the consensus with weight 1."""
        self.after_backward()
        self.transport.mean_(self.rows)
        self.weights.fill_(1)

    def state_dict(self) -> dict[str, Any]:
        """The base state, the position in the phase and the weights [k, 1]."""
        state = super().state_dict()
        state["workers"]["weights"] = self.weights.clone()
        return state | {"mixes": self.mixes, "num_peers": self.num_peers, "debiased": self.debiased}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        for name in ("mixes", "num_peers", "debiased"):
            setattr(self, name, state[name])
        self.weights.copy_(state["workers"]["weights"])


class SGP(Gossip):
    """Synchronous push-sum gossip, step then mix (Assran et al. 2019, Algorithm 1).

        y_r = optimizer(x_r, g_r(z_r));   x_r = sum over s of M[r, s] y_s;   w_r likewise;   z_r = x_r / w_r

    M is the mixing matrix of this step's topology. Every worker sends its row to its out-peers, which change from mix
    to mix. Where M is doubly stochastic, as on every regular topology with uniform weights, all push-sum weights stay 1
    and none is sent.
    """

    def after_step(self, lr: float) -> bool:
        """Mix the numerators with those of this step's in-peers."""
        if self.num_peers == 0:
            self._average()
        else:
            self._mix(self._next_mix())
        return super().after_step(lr)

    @torch.no_grad()
    def _mix(self, mix: Mix) -> None:
        for state in self.states:
            received = self.transport.exchange(state, mix.senders)
            kept, mixing_weights = mix.local(self.transport.local, state)
            add_messages(state.mul_(kept), received, mixing_weights)


def add_messages(state: Tensor, messages: Tensor, mixing_weights: Tensor) -> None:
    """Add mixing_weights [p, k, 1] * messages [p, k, P] to `state` [k, P], slot after slot."""
    for message, share in zip(messages, mixing_weights, strict=True):
        state.addcmul_(message, share)


build = SGP
