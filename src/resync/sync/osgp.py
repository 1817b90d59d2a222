"""Overlap Stochastic Gradient Push."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from resync.sync.algorithm import Training
from resync.sync.mixes import Average, InFlight
from resync.sync.options import osgp
from resync.sync.sgp import SGP


class OSGP(SGP):
    """Push-sum gossip that overlaps communication with gradient computation (Assran et al. 2019, section 4).

    In iteration k:

        x_r, w_r += the messages sent in iteration k - 1 - tau, if there are any
        send (x_r, w_r), scaled by the mixing weights, to the out-peers and keep the self weight's part
        x_r = optimizer(x_r, g_r(z_r)),   z_r = x_r / w_r

    The full step is applied to the numerator x. At most one mixing step is in flight: with staleness bound tau > 0 the
    next messages are sent when the last ones have been received, after 1 + tau iterations, and the iterations in
    between do not mix. A message is always received when its bound is reached, never earlier, so that a run does not
    depend on the speed of the network. `biased` ignores the weights and computes gradients at x, like the paper's
    biased variant.
    """

    shared = ("sent_at", "mix_number", "travels")
    per_worker = ("sent_rows", "sent_weights")

    def __init__(self, training: Training, options: osgp.OSGP) -> None:
        super().__init__(training, options)
        # The weight of messages in flight is missing at their senders, so the weights are never all 1.
        self.weights_change = not options.biased
        self.sent_rows, self.sent_weights = torch.zeros_like(self.rows), torch.zeros_like(self.weights)
        self.staleness = options.staleness
        self.sent_at, self.mix_number, self.travels = -1, 0, False
        self.in_flight: InFlight | None = None

    def before_forward(self) -> None:
        """Receive the messages that are due, send the next ones, and de-bias."""
        first = self.mixes.phase(self.steps)[0]
        if self.sent_at < first or self.steps > self.sent_at + self.staleness:
            self._take()
        if not self.travels:
            self.mix_number = 0 if self.sent_at < first else self.mix_number + 1
            self._send()
        super().before_forward()

    def after_step(self, lr: float) -> bool:
        """Average in a phase with 0 peers; messages to peers are handled in `before_forward`."""
        mix = self.mixes.at(self.steps, self.mix_number)
        for state in self.states if isinstance(mix, Average) else []:
            mix.apply(state, self.transport)
        mixed = isinstance(mix, Average) or self.sent_at == self.steps
        self.steps += 1
        self.rounds += mixed
        return mixed

    @torch.no_grad()
    def _send(self) -> None:
        mix = self.mixes.at(self.steps, self.mix_number)
        if isinstance(mix, Average):
            return
        for state, sent in zip(self.states, self._sent, strict=True):
            sent.copy_(state)
            state.mul_(mix.self_weight(state, self.transport))
        self.in_flight, self.sent_at, self.travels = InFlight(mix, self._sent, self.transport), self.steps, True

    @torch.no_grad()
    def _take(self) -> None:
        if self.in_flight:
            self.in_flight.take(self.states)
        self.in_flight, self.travels = None, False

    @property
    def _sent(self) -> list[Tensor]:
        return [self.sent_rows, self.sent_weights][: len(self.states)]

    @contextmanager
    def own_models(self) -> Iterator[None]:
        """Receive the messages in flight; then as in SGP."""
        self._take()
        with super().own_models():
            yield

    def to_consensus(self, rows: Tensor) -> None:
        """The mean of the numerators, including the messages in flight."""
        if self.debiased:
            rows.mul_(self.weights.to(rows))
        if self.in_flight:
            rows.add_(self.in_flight.left(0))
        self.transport.mean_(rows)

    def synchronise(self) -> None:
        """Receive the messages in flight, then give every worker the consensus with weight 1."""
        self.after_backward()
        self._take()
        super().synchronise()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; messages in flight are sent again, without being counted again."""
        if self.in_flight:
            self.in_flight.take(self.states)  # obsolete, but the messages must not arrive later
        super().load_state_dict(state)
        self.in_flight = None
        if self.travels:
            mix = self.mixes.at(self.sent_at, self.mix_number)
            assert not isinstance(mix, Average)
            with self.transport.uncounted():
                self.in_flight = InFlight(mix, self._sent, self.transport)


build = OSGP
