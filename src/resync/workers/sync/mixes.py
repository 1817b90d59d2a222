"""The mixing steps of gossip, as a pure function of the training step: in-peers and mixing weights."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resync.workers.engine.transport import Transport
from resync.workers.formulas import mixing
from resync.workers.formulas.topology import cycle, in_peers, resolve
from resync.workers.sync.options.base import Traffic

_SHORT = 64
"""Length of rows up to which one product of matrices mixes all workers of a process faster than copies of messages."""


@dataclass(frozen=True)
class Mix:
    """One mixing step: a row becomes self_weight * row + sum over slots of in_weights[slot] * message[slot].

    Attributes:
        in_peers: the workers from which each of the K workers receives.
        self_weights: weight of each worker's own row, [K].
        in_weights: weight of the message in each slot, [p, K]; 0 where a worker receives fewer than p messages.
        half_duplex: whether odd workers send first, and even ones when they have received.
    """

    in_peers: tuple[tuple[int, ...], ...]
    self_weights: np.ndarray
    in_weights: np.ndarray
    half_duplex: bool = False
    _tensors: dict[Any, tuple[Tensor, Sequence[Tensor]]] = field(default_factory=dict, repr=False, compare=False)

    def apply(self, state: Tensor, transport: Transport) -> None:
        """Mix `state` [k, n] of the local workers with the messages of their in-peers, in place."""
        if transport.world_size == 1 and 1 < state.shape[1] <= _SHORT:
            transport.mix_(state, self._matrix(state), self._number)
            return
        turns = [self.in_peers]
        if self.half_duplex:
            turns = [
                tuple(peers if worker % 2 == turn else () for worker, peers in enumerate(self.in_peers))
                for turn in (0, 1)
            ]
        exchanges, received = [], []
        for senders in turns:
            exchanges.append(transport.post(state, senders))
            received.append(exchanges[-1].wait())
        state.mul_(self.self_weight(state, transport))
        for exchange, messages in zip(exchanges, received, strict=True):
            self.add(state, messages, transport)
            exchange.release()

    def self_weight(self, state: Tensor, transport: Transport) -> Tensor:
        """The self weights of the local workers, [k, 1], with dtype and device of `state`."""
        return self._weights(state, transport)[0]

    def add(self, state: Tensor, messages: Tensor, transport: Transport) -> None:
        """Add the weighted messages [p, k, n] to `state` [k, n], slot after slot."""
        for message, weight in zip(messages, self._weights(state, transport)[1], strict=True):
            state.addcmul_(message, weight)

    @cached_property
    def _number(self) -> int:
        return sum(map(len, self.in_peers))

    def _matrix(self, state: Tensor) -> Tensor:
        kind = state.dtype, state.device, "matrix"
        if kind not in self._tensors:
            matrix = np.diag(self.self_weights)
            for slot, weights in enumerate(self.in_weights):
                for worker, senders in enumerate(self.in_peers):
                    if slot < len(senders):
                        matrix[worker, senders[slot]] += weights[worker]
            self._tensors[kind] = torch.as_tensor(matrix).to(state), ()
        return self._tensors[kind][0]

    def _weights(self, state: Tensor, transport: Transport) -> tuple[Tensor, Sequence[Tensor]]:
        """The self weights of the local workers and those of the messages in each slot, as of `self_weight`."""
        kind = state.dtype, state.device, transport.local.start, transport.local.stop
        if kind not in self._tensors:
            parts = self.self_weights[transport.local], self.in_weights[:, transport.local]
            own, received = (torch.as_tensor(part).to(state).unsqueeze(-1) for part in parts)
            self._tensors[kind] = own, received.unbind()
        return self._tensors[kind]


class Average:
    """The mixing step of a phase with 0 peers: an average over all workers."""

    def apply(self, state: Tensor, transport: Transport) -> None:
        transport.mean_(state)


class MixingSteps:
    """The mixing step of every training step."""

    def __init__(self, traffic: Traffic, num_workers: int, seed: int) -> None:
        assert traffic.topology is not None
        self.traffic, self.topology, self.num_workers, self.seed = traffic, traffic.topology, num_workers, seed
        self._cycles: dict[int, int] = {}
        self._repeated: dict[tuple[int, int], Mix] = {}

    @property
    def doubly_stochastic(self) -> bool:
        """Whether every mixing matrix is, so that push-sum weights of 1 stay 1 and need not be sent."""
        numbers = [peers for _, peers in self.traffic.peers if peers]
        if not resolve(self.topology).regular:
            return self.num_workers <= 1 or not numbers
        return all(
            mixing.is_doubly_stochastic(mixing.matrix(self.topology, self.num_workers, k, peers))
            for peers in numbers
            for k in range(cycle(self.topology, self.num_workers, peers) or 1)
        )

    def phase(self, step: int) -> tuple[int, int]:
        """The first step of the phase that `step` belongs to, and its number of peers."""
        phases = self.traffic.peers
        return phases[0] if len(phases) == 1 else next(phase for phase in reversed(phases) if phase[0] <= step)

    def at(self, step: int, number: int | None = None) -> Mix | Average:
        """The mixing step at a training step.

        `number` counts the mixing steps of the phase; without it, every training step of the phase has one.
        """
        first, peers = self.phase(step)
        if peers == 0:
            return Average()
        number = step - first if number is None else number
        if peers not in self._cycles:
            self._cycles[peers] = cycle(self.topology, self.num_workers, peers)
        repeats = self._cycles[peers]
        place = peers, number % repeats if repeats else number
        if repeats and place in self._repeated:
            return self._repeated[place]
        seed = self.seed if resolve(self.topology).random else 0
        mix = _mix(self.topology, self.num_workers, place[1], peers, seed, self.traffic.weight)
        mix = replace(mix, half_duplex=True) if self.traffic.half_duplex else mix
        if repeats:
            self._repeated[place] = mix
        return mix


@lru_cache(maxsize=512)
def _mix(topology: str, num_workers: int, k: int, peers: int, seed: int, weight: float | None) -> Mix:
    matrix = mixing.matrix(topology, num_workers, k, peers, seed)
    if weight is not None:
        matrix = mixing.reweighted(matrix, weight)
    senders = tuple(tuple(in_peers(topology, worker, num_workers, k, peers, seed)) for worker in range(num_workers))
    received = np.zeros((max(map(len, senders)), num_workers))
    for worker, peers_of in enumerate(senders):
        received[: len(peers_of), worker] = matrix[worker, list(peers_of)]
    return Mix(senders, matrix.diagonal().copy(), received)
