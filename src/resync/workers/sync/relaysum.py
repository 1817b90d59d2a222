"""RelaySum: sums that are relayed along a tree."""

from typing import ClassVar

import torch
from torch import Tensor

from resync.workers.formulas.topology import in_peers
from resync.workers.sync.algorithm import Algorithm, Training
from resync.workers.sync.options import RelaySum


class RelaySumAlgorithm(Algorithm):
    """Every worker sums what all have sent, a worker at distance d by d - 1 steps ago (Vogels et al. 2021).

        m_(i->j) = h_i + sum over the neighbours q of i except j of the last m_(q->i)      on every edge of the tree
        RelaySum/Model:   h_i = optimizer(x_i, g_i(x_i));   x_i = (h_i + sum over q of m_(q->i) + missing_i x(0)) / n
        RelaySum/Grad:    h_i = g_i;   x_i = optimizer(x_i, (h_i + sum over q of m_(q->i)) / n)

    `missing_i` is the number of workers of which nothing has arrived yet. It follows from their distances, so that no
    counts are sent.
    """

    per_worker: ClassVar[tuple[str, ...]] = ("received", "start")

    def __init__(self, training: Training, options: RelaySum) -> None:
        super().__init__(training)
        num_workers, local = self.transport.num_workers, self.transport.local
        peers = [in_peers(options.topology, worker, num_workers, 0) for worker in range(num_workers)]
        self.in_peers = tuple(map(tuple, peers))
        self.places = tuple(
            tuple(peers[sender].index(worker) for sender in peers[worker]) for worker in range(num_workers)
        )
        self.missing = _missing(self.in_peers)[:, local].to(self.rows.device)
        self.changes_gradients = options.relayed == "gradient"
        slots = max(map(len, peers), default=0)
        # A row for each worker: what has arrived from its neighbours.
        self.received = self.rows.new_zeros(len(self.rows), slots, self.rows.shape[1])
        self.start = self.rows.clone()

    @torch.no_grad()
    def after_backward(self) -> None:
        if self.changes_gradients:
            self._sum_(self.workers.grads)

    @property
    def one_gradient(self) -> bool:
        return self.changes_gradients

    @torch.no_grad()
    def after_step(self, lr: float) -> bool:
        if not self.changes_gradients:
            self._sum_(self.rows)
        return super().after_step(lr)

    def _sum_(self, values: Tensor) -> None:
        """Relay `values` [k, P], and replace them by what has arrived of all workers, divided by their number."""
        if not self.received.numel():
            return
        from_others = values.unsqueeze(1) + self.received.sum(1, keepdim=True) - self.received
        exchange = self.transport.post(from_others.transpose(0, 1).contiguous(), self.in_peers, self.places)
        self.received.copy_(exchange.wait().transpose(0, 1))
        exchange.release()
        values.add_(self.received.sum(1))
        if not self.changes_gradients and self.steps < len(self.missing):
            values.addcmul_(self.missing[self.steps].unsqueeze(1).to(values), self.start)
        values.div_(self.transport.num_workers)


def _missing(neighbours: tuple[tuple[int, ...], ...]) -> Tensor:
    """The number of workers further away than 1, 2, ... edges, [steps, K], as long as there are any."""
    reached = [{worker} for worker in range(len(neighbours))]
    counts: list[list[int]] = []
    while True:
        reached = [
            own.union(*(reached[peer] for peer in peers)) for own, peers in zip(reached, neighbours, strict=True)
        ]
        missing = [len(neighbours) - len(own) for own in reached]
        if not any(missing):
            return torch.tensor(counts, dtype=torch.int64).reshape(len(counts), len(neighbours))
        counts.append(missing)


build = RelaySumAlgorithm
