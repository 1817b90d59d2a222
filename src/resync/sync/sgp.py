"""Stochastic Gradient Push."""

from functools import cache

import torch

from resync.sync.algorithm import Algorithm
from resync.topology import book, in_peers
from resync.transport import Transport
from resync.workers import Workers


class SGP(Algorithm):
    """Synchronous push-sum gossip, step then mix (Assran et al. 2019, Algorithm 1).

        y_r = optimizer(x_r, g_r(x_r));   x_r = (y_r + sum over in-peers j of y_j) / (p + 1)

    Every worker sends its row to p out-peers, which change from mix to mix. The graph is regular and the mixing
    uniform, hence doubly stochastic: all push-sum weights stay 1, the de-biased parameters are the parameters
    themselves, and no weight has to travel.
    """

    def __init__(
        self,
        workers: Workers,
        transport: Transport,
        total_steps: int,
        warmup_steps: int = 0,
        *,
        topology: str = "exponential",
        peers: int = 1,
    ) -> None:
        super().__init__(workers, transport, total_steps, warmup_steps)
        self.topology = topology
        self.peers = peers

    def after_step(self, lr: float) -> bool:
        """Mix the parameters with those of this step's in-peers."""
        rows = self.workers.rows.data
        senders = _senders(self.topology, self.transport.num_workers, self.steps, self.peers)
        received = self.transport.exchange(rows, senders)
        with torch.no_grad():
            for message in received:
                rows.add_(message)
            rows.div_(len(received) + 1)
        return super().after_step(lr)


def _senders(topology: str, size: int, mix: int, peers: int) -> list[list[int]]:
    """In-peers of every worker in this mix; they repeat once the book has been gone through."""
    return _senders_at(topology, size, mix % max(1, len(book(topology, 0, size, peers))), peers)


@cache
def _senders_at(topology: str, size: int, mix: int, peers: int) -> list[list[int]]:
    return [in_peers(topology, rank, size, mix, peers) for rank in range(size)]


build = SGP
