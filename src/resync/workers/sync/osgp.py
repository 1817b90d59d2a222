"""Overlap Stochastic Gradient Push."""

import torch
from torch import Tensor

from resync.workers.sync.algorithm import Algorithm, Training
from resync.workers.sync.in_flight import InFlight
from resync.workers.sync.options import gossip
from resync.workers.sync.sgp import SGPAlgorithm


class OSGPAlgorithm(SGPAlgorithm):
    """Push-sum gossip that overlaps communication with gradient computation (Assran et al. 2019, section 4).

    In iteration k, every worker r:

        x_r, w_r += the messages that have arrived;   z_r = x_r / w_r
        if no message of r travels: send (x_r, w_r), scaled by the mixing weights, to the out-peers of r's next mixing
            step, and keep the self weight's part
        x_r = optimizer(x_r, g_r(z_r))

    A message sent in iteration k arrives in iteration k + 1 + d. With `staleness` 0, which is tau = 1 of the paper (one
    gradient step while a message travels), d is 0 and every iteration sends. Above 0, each d is drawn from 0..staleness
    (resync.workers.formulas.arrivals): as in the original code, a message is taken as soon as it is there, and the
    bound only bounds; unlike there, when it is there does not depend on the network, so that a run can be repeated.

    The order, receive then send then step, is that of the authors' later code, as is the full step on the numerator x.
    In the paper's Algorithm 2 (from memory, unverified) a worker steps, sends, and then receives, which is not offered.

    `biased` ignores the weights: gradients are computed at x, and the consensus is the mean of the x, both without what
    travels: a worker gives its share away, and receives, as it sends. That this is the paper's variant is unverified.
    Where a biased run is evaluated follows from when its loop calls `send_ahead`: in a loop of one's own right after a
    step, so that the consensus is that of the points of the next gradients; in `resync train` just before the gradient,
    so that it is that of the steps' results, one message earlier.
    """

    parts = ("in_flight",)

    def __init__(self, training: Training, options: gossip.OSGP) -> None:
        super().__init__(training, options)
        self.biased = options.biased
        # The weight of messages in flight is missing at their senders, so the weights are never all 1.
        self.weights_change = not self.biased
        self.in_flight = InFlight(self.mixes, self.transport, self.states, options.staleness)

    @torch.no_grad()
    def send_ahead(self) -> None:
        if self.biased:
            self._receive_due()
        if self.mixes.phase(self.steps)[1]:
            kept = self.rows if self.biased else self.weights  # sending scales x and w alike, and not z = x / w
            for mix in self.in_flight.send(self.steps, self.rows, self.weights):
                kept.mul_(mix.self_weight(kept, self.transport))

    @torch.no_grad()
    def after_step(self, lr: float) -> bool:
        """Average in a phase with 0 peers; then receive the messages that are due in the next step."""
        if self.mixes.phase(self.steps)[1] == 0:
            for state in self.states:
                self.transport.mean_(state)
        ended = Algorithm.after_step(self, lr)
        if not self.biased:
            self._receive_due()
            self.debias()
        return ended

    def _receive_due(self) -> None:
        """Add the messages that are due in the next step; a phase begins its graph anew, with none in flight."""
        if self.steps == self.mixes.phase(self.steps)[0]:
            self.in_flight.take(self.states)
            self.in_flight.numbers = [0] * self.transport.num_workers
        else:
            self.in_flight.take(self.states, until=self.steps)

    def receive(self) -> None:
        if self.biased:
            self.in_flight.drop()
        elif self.in_flight.posted:
            self.after_backward()
            self.in_flight.take(self.states)
            self.debias()

    def to_consensus(self, rows: Tensor) -> None:
        """The mean of x, including the messages in flight; if biased, without them."""
        if not self.biased:
            rows.mul_(self.weights.to(rows))
            self.in_flight.add_left(rows)
        self.transport.mean_(rows)

    def synchronise(self) -> None:
        self.receive()
        super().synchronise()


build = OSGPAlgorithm
