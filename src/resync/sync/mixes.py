"""The mixing steps of gossip: a pure function of the training step, as numbers for the local workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from resync.engine.transport import Transport
from resync.formulas import mixing
from resync.formulas.topology import in_peers, peer_list, resolve

PeerPhases = Sequence[tuple[int, int]]
"""(first step, peers) in ascending order, starting with step 0; 0 peers is an average over all workers."""


@dataclass(frozen=True)
class Mix:
    """Rows become self_weight * row + sum over slots of in_weights[slot] * message[slot].

    Attributes:
        in_peers: for all K workers, whom it receives from.
        self_weights: weight of its own row, [K].
        in_weights: weight of the message in each slot, [p, K]; 0 where a worker receives fewer than p.
    """

    in_peers: tuple[tuple[int, ...], ...]
    self_weights: np.ndarray
    in_weights: np.ndarray

    def apply(self, state: Tensor, transport: Transport) -> None:
        """Mix `state` [k, n] of the local workers with what they receive, in place."""
        messages = transport.exchange(state, self.in_peers)
        self.add(state.mul_(self.kept(state, transport)), messages, transport)

    def kept(self, state: Tensor, transport: Transport) -> Tensor:
        """The self weights of the local workers, [k, 1], like `state`."""
        return torch.as_tensor(self.self_weights[transport.local]).to(state).unsqueeze(-1)

    def add(self, state: Tensor, messages: Tensor, transport: Transport) -> None:
        """Add the weighted messages [p, k, n] to `state` [k, n], slot after slot."""
        weights = torch.as_tensor(self.in_weights[:, transport.local]).to(state).unsqueeze(-1)
        for message, weight in zip(messages, weights, strict=True):
            state.addcmul_(message, weight)


class InFlight:
    """The messages of a mix, from `sent` states [k, n] that must not change until they are taken."""

    def __init__(self, mix: Mix, sent: Sequence[Tensor], transport: Transport) -> None:
        self.mix, self.sent, self.transport = mix, sent, transport
        self.exchanges = [transport.post(state, mix.in_peers) for state in sent]

    def take(self, states: Sequence[Tensor]) -> None:
        """Wait for the messages and add them to `states`."""
        for state, exchange in zip(states, self.exchanges, strict=True):
            self.mix.add(state, exchange.wait(), self.transport)

    def left(self, number: int) -> Tensor:
        """The part of state `number` that has left the local workers and not arrived, [k, n]."""
        return self.sent[number] * (1 - self.mix.kept(self.sent[number], self.transport))


class Average:
    """The mix of a phase with 0 peers: over all workers."""

    def apply(self, state: Tensor, transport: Transport) -> None:
        """Replace `state` [k, n] by the mean over all workers."""
        transport.mean_(state)


@dataclass(frozen=True)
class MixingSteps:
    """Which mix follows which training step.

    In every phase mixes are counted from 0: nothing depends on what came before but the step. `every` is the number of
    steps from one mix to the next.

    Raises ValueError for a topology, peers or mixing weights that do not fit the number of workers.
    """

    topology: str | int
    num_workers: int
    phases: PeerPhases = ((0, 1),)
    mixing_weights: tuple[float, ...] | None = None
    seed: int = 0
    every: int = 1

    def __post_init__(self) -> None:
        """Check the phases; what depends on the number of workers is checked by `doubly_stochastic`."""
        firsts = [first for first, _ in self.phases]
        if not firsts or firsts[0] != 0 or firsts != sorted(set(firsts)) or min(n for _, n in self.phases) < 0:
            expected = "(first step, peers >= 0) in ascending order, from step 0 on"
            raise ValueError(f"peers is {list(self.phases)}, expected {expected}")

    @property
    def doubly_stochastic(self) -> bool:
        """Whether every mix is, so that push-sum weights of 1 stay 1 and need not be sent."""
        numbers = [number for _, number in self.phases if number]
        return all([self._is_doubly_stochastic(number) for number in numbers])  # a list: all of them are checked

    def is_due(self, step: int) -> bool:
        """Whether a mix belongs to this step; an average to every one of its phase."""
        first, peers = self._phase(step)
        return peers == 0 or (step - first) % self.every == 0

    def at(self, step: int) -> Mix | Average:
        """The mix that belongs to a step, or to the last one before it that has a mix."""
        first, peers = self._phase(step)
        number = (step - first) // self.every
        if peers == 0:
            return Average()
        repeats, seed = resolve(self.topology).pick != "random", self.seed
        if repeats:  # and then nothing is drawn
            number, seed = number % max(1, len(peer_list(self.topology, 0, self.num_workers, peers))), 0
        return _mix(self.topology, self.num_workers, number, peers, self.mixing_weights, seed)

    def _phase(self, step: int) -> tuple[int, int]:
        return next(phase for phase in reversed(self.phases) if phase[0] <= step)

    def _is_doubly_stochastic(self, peers: int) -> bool:
        if not resolve(self.topology).regular:
            return self.num_workers <= 1
        number = max(1, len(peer_list(self.topology, 0, self.num_workers, peers)))
        matrices = (
            mixing.matrix(self.topology, self.num_workers, k, peers, mixing_weights=self.mixing_weights)
            for k in range(number)
        )
        return all(map(mixing.is_doubly_stochastic, matrices))


@lru_cache(maxsize=512)
def _mix(
    topology: str | int, num_workers: int, k: int, peers: int, mixing_weights: tuple[float, ...] | None, seed: int
) -> Mix:
    matrix = mixing.matrix(topology, num_workers, k, peers, mixing_weights=mixing_weights, seed=seed)
    senders = tuple(tuple(in_peers(topology, worker, num_workers, k, peers, seed)) for worker in range(num_workers))
    received = np.zeros((max(map(len, senders)), num_workers))
    for worker, heard in enumerate(senders):
        received[: len(heard), worker] = matrix[worker, list(heard)]
    return Mix(senders, matrix.diagonal().copy(), received)
