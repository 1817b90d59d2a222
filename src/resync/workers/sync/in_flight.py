"""Messages of gossip that travel while gradients are computed."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resync.workers.engine.transport import Exchange, Transport
from resync.workers.formulas.arrivals import lateness
from resync.workers.sync.mixes import Mix, MixingSteps


class InFlight:
    """The messages of push-sum in flight; a worker sends the next one when its last one has arrived.

    `states` are those that are sent, x [k, n] and perhaps w [k, 1]. A message that is sent in step k is due in step
    k + 1 + d, with d drawn from 0..staleness (resync.workers.formulas.arrivals). What is sent is copied until it has
    arrived.

    Attributes: by worker, of all K, `sent_at` and `due`, the steps of its last message (due 0: it has arrived), and
    `numbers`, the number of its next mixing step in this phase.
    """

    def __init__(self, mixes: MixingSteps, transport: Transport, states: Sequence[Tensor], staleness: int) -> None:
        self.mixes, self.transport, self.staleness = mixes, transport, staleness
        self.sent = [torch.zeros_like(state) for state in states]
        size = transport.num_workers
        self.sent_at, self.due, self.numbers = [0] * size, [0] * size, [0] * size
        self.posted: list[tuple[int, Mix, list[Exchange]]] = []

    def send(self, step: int, rows: Tensor, weights: Tensor) -> Iterator[Mix]:
        """Send x = w z, and w if it is a state too, of the workers whose last message has arrived.

        `rows` [k, n] are z, `weights` [k, 1] w. Yields the mixing steps that this begins.
        """
        late = lateness(self.mixes.seed, step, len(self.due), self.staleness)
        free = [worker for worker, due in enumerate(self.due) if due <= step]
        for worker in free:
            self.sent_at[worker], self.due[worker] = step, step + 1 + late[worker]
            self.numbers[worker] += 1
        for index in self.transport.here(free):
            torch.mul(rows[index], weights[index].to(rows), out=self.sent[0][index])
            for sent in self.sent[1:]:
                sent[index] = weights[index]
        for due in sorted({self.due[worker] for worker in free}):
            yield self._post(step, due)

    def take(self, states: Sequence[Tensor], until: float = inf) -> None:
        """Add the messages that are due by a step to `states`, in the order in which they were sent."""
        for due, mix, exchanges in self.posted:
            for state, exchange in zip(states, exchanges, strict=True):
                if due <= until:
                    mix.add(state, exchange.wait(), self.transport)
                    exchange.release()
        self.posted = [message for message in self.posted if message[0] > until]
        self.due = [due if due > until else 0 for due in self.due]

    def drop(self) -> None:
        """Receive all messages and add them to nothing, so that they do not arrive later."""
        self.take([torch.zeros_like(sent) for sent in self.sent])

    def add_left(self, rows: Tensor) -> None:
        """Add to `rows` [k, n] the part of x that the local workers have sent and that is on its way."""
        for _, mix, _ in self.posted:
            rows.add_(self.sent[0] * (1 - mix.self_weight(rows, self.transport)))

    def state_dict(self) -> dict[str, Any]:
        lists = {name: list(getattr(self, name)) for name in ("sent_at", "due", "numbers")}
        return lists | {"workers": {f"sent {number}": sent.clone() for number, sent in enumerate(self.sent)}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; messages in flight are sent again, without being counted again."""
        self.drop()
        self.sent_at, self.due, self.numbers = (list(state[name]) for name in ("sent_at", "due", "numbers"))
        for number, sent in enumerate(self.sent):
            sent.copy_(state["workers"][f"sent {number}"])
        with self.transport.uncounted():
            for sent_at, due in sorted({pair for pair in zip(self.sent_at, self.due, strict=True) if pair[1]}):
                self._post(sent_at, due)

    def _post(self, sent_at: int, due: int) -> Mix:
        """Start the messages that were sent and are due at these steps; returns their mixing step."""
        steps = enumerate(zip(self.sent_at, self.due, strict=True))
        mix = self._mix(sent_at, {worker: self.numbers[worker] - 1 for worker, of in steps if of == (sent_at, due)})
        self.posted.append((due, mix, [self.transport.post(sent, mix.in_peers) for sent in self.sent]))
        return mix

    def _mix(self, step: int, numbers: Mapping[int, int]) -> Mix:
        """The mixing step in which only some workers send, each its own mixing step `number` of the phase of `step`.

        Every worker shares out its row as it would if all sent; the rows of the others stay whole.
        """
        size = self.transport.num_workers
        self_weights = np.ones(size)
        heard: list[list[tuple[int, float]]] = [[] for _ in range(size)]
        for sender, number in sorted(numbers.items()):
            mix = self.mixes.at(step, number)
            assert isinstance(mix, Mix)
            if numbers == dict.fromkeys(range(size), number):
                return mix
            self_weights[sender] = mix.self_weights[sender]
            for receiver, senders in enumerate(mix.in_peers):
                if sender in senders:
                    heard[receiver].append((sender, mix.in_weights[senders.index(sender), receiver]))
        weights = np.zeros((max(map(len, heard)), size))
        for receiver, received in enumerate(heard):
            weights[: len(received), receiver] = [weight for _, weight in received]
        return Mix(tuple(tuple(sender for sender, _ in messages) for messages in heard), self_weights, weights)
