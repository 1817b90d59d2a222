"""Overlap Stochastic Gradient Push."""

from typing import Any

import torch
from torch import Tensor

from resync.engine.transport import Exchange
from resync.sync.algorithm import Training
from resync.sync.mixes import Mix
from resync.sync.options import osgp
from resync.sync.sgp import Gossip, add_messages

_SENT = ("sent_rows", "sent_weights")


class OSGP(Gossip):
    """Push-sum gossip whose messages travel while gradients are taken (Assran et al. 2019, section 4).

    In iteration k:

        x_r, w_r += the message sent in iteration k - 1 - tau, if there is one
        send mixing_weights of (x_r, w_r) to the out-peers and keep the rest
        x_r = optimizer(x_r, g_r(z_r)),   z_r = x_r / w_r

    The full step goes to the numerator x. At most one message of a worker is on its way: with staleness bound tau > 0
    the next one is sent when the last has been taken, every 1 + tau iterations, and the iterations between do not
    mix. A message is always taken when its bound is reached, never earlier, so that a run does not depend on the
    speed of the network. `biased` ignores the weights and takes gradients at x, as the paper's biased variant does.
    """

    def __init__(self, training: Training, options: osgp.OSGP) -> None:
        super().__init__(training, options)
        self.staleness = options.staleness
        # What was sent is missing at its sender until it arrives, so the weights are never all 1.
        self.keeps_weights = options.biased
        self.age = 0
        self.on_the_way: list[Exchange] = []

    def before_forward(self) -> None:
        """Take the message that is due, send the next one, and de-bias."""
        self._begin_phase()
        if self.on_the_way and self.age >= self.staleness:
            self._take()
        elif self.on_the_way:
            self.age += 1
        if self.num_peers and not self.on_the_way:
            self._send(self._next_mix())
        self._debias()

    def after_step(self, lr: float) -> bool:
        """Average in a phase without topology; the messages of the others travel since before the gradient."""
        if self.num_peers == 0:
            self._average()
        sent = self.num_peers == 0 or self.age == 0
        self.steps += 1
        self.rounds += sent
        return sent

    @torch.no_grad()
    def _send(self, mix: Mix) -> None:
        self.age = 0
        for state in self.states:
            kept, _ = mix.local(self.transport.local, state)
            self.on_the_way.append(self.transport.post(state.clone(), mix.senders))
            state.mul_(kept)

    @torch.no_grad()
    def _take(self) -> None:
        mix = self._last_mix()
        for state, exchange in zip(self.states, self.on_the_way, strict=True):
            _, mixing_weights = mix.local(self.transport.local, state)
            add_messages(state, exchange.wait(), mixing_weights)
        self.on_the_way = []
        self.age = 0

    def _end_phase(self) -> None:
        if self.on_the_way:
            self.after_backward()
            self._take()

    def synchronise(self) -> None:
        """Take what is on its way, then give every worker the consensus with weight 1."""
        self._end_phase()
        super().synchronise()

    def _add_on_the_way(self, rows: Tensor) -> None:
        if self.on_the_way:
            kept, _ = self._last_mix().local(self.transport.local, rows)
            rows.addcmul_(self.on_the_way[0].sent, 1 - kept)

    def state_dict(self) -> dict[str, Any]:
        """The gossip's state and what is on its way: as it was sent, [k, P] and [k, 1]."""
        state = super().state_dict() | {"age": self.age}
        state["workers"] |= {name: each.sent.clone() for name, each in zip(_SENT, self.on_the_way, strict=False)}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; what was on its way is sent again, and not counted again."""
        super().load_state_dict(state)
        self.age = state["age"]
        for exchange in self.on_the_way:
            exchange.wait()
        self.on_the_way = []
        workers = state["workers"]
        with self.transport.uncounted():
            for name, like in zip(_SENT, self.states, strict=False):
                if name in workers:
                    sent = workers[name].to(like)
                    self.on_the_way.append(self.transport.post(sent, self._last_mix().senders))


build = OSGP
