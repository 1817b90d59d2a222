"""One mix of push-sum gossip as numbers for the local workers: whom each hears, and with which share."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from resync.formulas import mixing
from resync.formulas.topology import in_peers, peer_list, resolve

PeerPhases = Sequence[tuple[int, int]]
"""(first step, peers) in ascending order, starting with step 0; 0 peers is an average over all workers."""


@dataclass(frozen=True)
class Mix:
    """Rows become kept * row + sum over slots of mixing_weights[slot] * message[slot].

    Attributes:
        senders: for all K workers, whom it hears.
        kept: share of its own row, [K].
        mixing_weights: share of the message in each slot, [p, K]; 0 where a worker hears fewer than p.
    """

    senders: tuple[tuple[int, ...], ...]
    kept: np.ndarray
    mixing_weights: np.ndarray

    def local(self, workers: slice, like: Tensor) -> tuple[Tensor, Tensor]:
        """`kept` [k, 1] and `mixing_weights` [p, k, 1] of these workers, in the dtype and on the device of `like`."""
        kept = torch.as_tensor(self.kept[workers]).to(like)
        mixing_weights = torch.as_tensor(self.mixing_weights[:, workers]).to(like)
        return kept.unsqueeze(-1), mixing_weights.unsqueeze(-1)


def mix_at(
    topology: str | int, num_workers: int, k: int, peers: int, mixing_weights: tuple[float, ...] | None, seed: int
) -> Mix:
    """Mix number `k`; the peer lists of all topologies but the random ones repeat, and so do their mixes."""
    if resolve(topology).pick != "random":
        k %= max(1, len(peer_list(topology, 0, num_workers, peers)))
        seed = 0
    return _mix_at(topology, num_workers, k, peers, mixing_weights, seed)


@lru_cache(maxsize=512)
def _mix_at(
    topology: str | int, num_workers: int, k: int, peers: int, mixing_weights: tuple[float, ...] | None, seed: int
) -> Mix:
    matrix = mixing.matrix(topology, num_workers, k, peers, mixing_weights=mixing_weights, seed=seed)
    senders = tuple(tuple(in_peers(topology, worker, num_workers, k, peers, seed)) for worker in range(num_workers))
    slots = max(map(len, senders))
    received = np.zeros((slots, num_workers))
    for worker, heard in enumerate(senders):
        received[: len(heard), worker] = matrix[worker, list(heard)]
    return Mix(senders, matrix.diagonal().copy(), received)


def keeps_weights(topology: str | int, num_workers: int, peers: int, mixing_weights: tuple[float, ...] | None) -> bool:
    """Whether every mix is doubly stochastic, so that push-sum weights of 1 stay 1 and need not be sent."""
    if not resolve(topology).regular:
        return num_workers <= 1
    number = max(1, len(peer_list(topology, 0, num_workers, peers)))
    mixes = (mixing.matrix(topology, num_workers, k, peers, mixing_weights=mixing_weights) for k in range(number))
    return all(map(mixing.is_doubly_stochastic, mixes))
