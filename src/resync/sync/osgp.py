"""Overlap Stochastic Gradient Push."""

from math import inf
from typing import Any

import torch
from torch import Tensor

from resync.formulas.arrivals import lateness
from resync.sync.algorithm import Algorithm, Training
from resync.sync.mixes import InFlight, Mix
from resync.sync.options import every_step
from resync.sync.sgp import SGP


class OSGP(SGP):
    """Push-sum gossip that overlaps communication with gradient computation (Assran et al. 2019, section 4).

    In iteration k, every worker r:

        x_r, w_r += the messages that have arrived;   z_r = x_r / w_r
        if no message of r travels: send (x_r, w_r), scaled by the mixing weights, to the out-peers of r's next mixing
            step, and keep the self weight's part
        x_r = optimizer(x_r, g_r(z_r))

    A message sent in iteration k arrives in iteration k + 1 + d. With `staleness` 0, which is tau = 1 of the paper (one
    gradient step while a message travels), d is 0 and every iteration sends. Above 0, each d is drawn from 0..staleness
    (resync.formulas.arrivals): as in the original code, a message is taken as soon as it is there, and the bound only
    bounds; unlike there, when it is there does not depend on the network, so that a run can be repeated.

    The order, receive then send then step, is that of the authors' later code, as is the full step on the numerator x.
    In the paper's Algorithm 2 (from memory, unverified) a worker steps, sends, and then receives.

    `biased` ignores the weights: gradients are computed at x, and the consensus is the mean of the x, both without what
    travels: a worker gives its share away, and receives, as it sends. That this is the paper's variant is unverified.
    """

    shared = ("sent_at", "due", "numbers")
    per_worker = ("sent_rows", "sent_weights")

    def __init__(self, training: Training, options: every_step.OSGP) -> None:
        super().__init__(training, options)
        # The weight of messages in flight is missing at their senders, so the weights are never all 1.
        self.weights_change = not options.biased
        self.biased = options.biased
        self.staleness = options.staleness
        self.sent_rows, self.sent_weights = torch.zeros_like(self.rows), torch.zeros_like(self.weights)
        # By worker: the steps at which its last message was sent and is due, and the number of its next mixing step.
        size = self.transport.num_workers
        self.sent_at, self.due, self.numbers = [0] * size, [0] * size, [0] * size
        self.in_flight: list[InFlight] = []

    @torch.no_grad()
    def send_ahead(self) -> None:
        """Send the messages that travel while this step's gradient is computed."""
        if self.biased:
            self._receive_due()
        if self.mixes.phase(self.steps)[1]:
            self._send()

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

    def receive(self) -> None:
        """Receive all messages in flight; with `biased`, drop them."""
        if self.biased:
            self._drop()
        elif self.in_flight:
            self.after_backward()
            self._take()
            self.debias()

    def _receive_due(self) -> None:
        """Add the messages that are due in the next step; a phase begins its graph anew, with none in flight."""
        if self.steps == self.mixes.phase(self.steps)[0]:
            self._take()
            self.numbers = [0] * len(self.numbers)
        else:
            self._take(until=self.steps)

    def _take(self, until: float = inf) -> None:
        """Add the messages that are due by a step to x and w, in the order in which they were sent."""
        for messages in self.in_flight:
            if messages.due <= until:
                messages.take(self.states)
        self.in_flight = [messages for messages in self.in_flight if messages.due > until]
        self.due = [due if due > until else 0 for due in self.due]

    def _send(self) -> None:
        local, late = self.transport.local, lateness(self.seed, self.steps, len(self.due), self.staleness)
        free = [worker for worker, due in enumerate(self.due) if due <= self.steps]
        for worker in free:
            self.sent_at[worker], self.due[worker] = self.steps, self.steps + 1 + late[worker]
            self.numbers[worker] += 1
            if local.start <= worker < local.stop:
                index = worker - local.start
                torch.mul(self.rows[index], self.weights[index].to(self.rows), out=self.sent_rows[index])
                self.sent_weights[index] = self.weights[index]
        for due in sorted({self.due[worker] for worker in free}):
            mix = self._post(self.steps, due)
            kept = self.rows if self.biased else self.weights  # sending scales x and w alike, and not z
            kept.mul_(mix.self_weight(kept, self.transport))

    def _post(self, sent_at: int, due: int) -> Mix:
        """Start the messages that were sent and are due at these steps; returns their mixing step."""
        found = enumerate(zip(self.sent_at, self.due, strict=True))
        senders = [worker for worker, steps in found if steps == (sent_at, due)]
        mix = self.mixes.sent_by(sent_at, {worker: self.numbers[worker] - 1 for worker in senders})
        sent = [self.sent_rows, self.sent_weights][: len(self.states)]
        self.in_flight.append(InFlight(mix, sent, self.transport, due))
        return mix

    def to_consensus(self, rows: Tensor) -> None:
        """The mean of x, including the messages in flight; if biased, without them."""
        if not self.biased:
            rows.mul_(self.weights.to(rows))
            for messages in self.in_flight:
                rows.add_(messages.left(0))
        self.transport.mean_(rows)

    def synchronise(self) -> None:
        """Receive the messages in flight, then give every worker the consensus with weight 1."""
        self.receive()
        super().synchronise()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; messages in flight are sent again, without being counted again."""
        self._drop()
        super().load_state_dict(state)
        travelling = {each for each in zip(self.sent_at, self.due, strict=True) if each[1]}
        with self.transport.uncounted():
            for sent_at, due in sorted(travelling):
                self._post(sent_at, due)

    def _drop(self) -> None:
        """Receive the messages in flight and add them to nothing, so that they do not arrive later."""
        for messages in self.in_flight:
            messages.take([torch.zeros_like(state) for state in self.states])
        self.in_flight, self.due = [], [0] * len(self.due)


build = OSGP
