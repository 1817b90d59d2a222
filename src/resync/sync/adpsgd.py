"""Asynchronous decentralised parallel SGD as a deterministic sequence of events in simulated time."""

from itertools import zip_longest
from typing import Any

import torch

from resync.streams import stream
from resync.sync.algorithm import Algorithm, Training
from resync.sync.fields import moments
from resync.sync.options import adpsgd
from resync.sync.pairing import AsynchronousPairs
from resync.sync.pairs import check_bipartite, partner


class ADPSGD(Algorithm):
    """Asynchronous pairwise averaging in simulated time (Lian et al. 2018, as compared in Assran et al. 2019).

        every worker, forever and at its own speed:
            take a gradient at its copy z_r of x_r;   x_r = optimizer(x_r, gradient)
            active (odd) workers: x_r = x_s = (x_r + x_s) / 2 with the next partner s of their peer list
            z_r = x_r

    One step of the training loop is one unit of time. A worker whose gradient is not finished in this unit takes no
    step: its parameters and optimizer state stay. Those that finish do so in the order of their times, then of their
    ranks. The gradient is that at z_r, which may be older than averages that partners have made since.

    `compute_times`: `constant` 1 unit a gradient; `random` uniform in [1, 2], drawn for every gradient; `straggler`
    worker 0 takes `slowdown` units, the others 1.
    """

    def __init__(self, training: Training, options: adpsgd.ADPSGD) -> None:
        super().__init__(training)
        size = self.transport.num_workers
        check_bipartite(options.topology, size)
        self.topology, self.compute_times, self.slowdown = options.topology, options.compute_times, options.slowdown
        self.gradients = [0] * size
        self.finish = [self._duration(worker) for worker in range(size)]
        self.averages = [0] * size
        # z: where each worker takes its gradient; x is kept aside while it does.
        self.copies = self.rows.clone()
        self.shared = self.rows.clone()
        self.idle: list[int] = []
        self.before: list[torch.Tensor] = []
        self.at_copies = False

    def before_forward(self) -> None:
        """Gradients are taken at the workers' copies."""
        self.shared.copy_(self.rows)
        self.rows.copy_(self.copies)
        self.at_copies = True

    def after_backward(self) -> None:
        """The step is made on the parameters themselves; what idle workers must keep is remembered."""
        self._leave_copies()
        due, local = self._due(), self.transport.local
        self.idle = [worker - local.start for worker in range(local.start, local.stop) if worker not in due]
        self.before = [field[self.idle] for field in self._fields()]

    @torch.no_grad()
    def after_step(self, lr: float) -> bool:
        """Undo the step of the workers that have not finished; average the pairs of those that have."""
        local = self.transport.local
        for field, before in zip_longest(self._fields(), self.before):
            # A field that the optimizer made in this step was zero before it.
            field[self.idle] = 0 if before is None else before
        for worker in self._due():
            self._average_with_partner(worker)
            self.gradients[worker] += 1
            self.finish[worker] += self._duration(worker)
            if local.start <= worker < local.stop:
                self.copies[worker - local.start] = self.rows[worker - local.start]
        return super().after_step(lr)

    def _leave_copies(self) -> None:
        if self.at_copies:
            self.rows.copy_(self.shared)
            self.at_copies = False

    def _due(self) -> list[int]:
        """The workers that finish a gradient in this unit of time, in the order in which they do."""
        finished = [worker for worker, time in enumerate(self.finish) if time <= self.steps + 1]
        return sorted(finished, key=lambda worker: (self.finish[worker], worker))

    def _average_with_partner(self, worker: int) -> None:
        other = partner(self.topology, worker, self.transport.num_workers, self.averages[worker])
        if other is None:
            return
        self.averages[worker] += 1
        senders: list[list[int]] = [[] for _ in range(self.transport.num_workers)]
        senders[worker], senders[other] = [other], [worker]
        [received] = self.transport.exchange(self.rows, senders)
        local = self.transport.local
        for each in (worker, other):
            if local.start <= each < local.stop:
                index = each - local.start
                self.rows[index] = (self.rows[index] + received[index]) / 2

    def _duration(self, worker: int) -> float:
        """Units of time that the worker's next gradient takes; at least 1, so that at most one ends in a unit."""
        if self.compute_times == "random":
            return float(stream(self.seed, f"compute time {self.gradients[worker]}", worker=worker).uniform(1, 2))
        return self.slowdown if self.compute_times == "straggler" and worker == 0 else 1.0

    def _fields(self) -> list[torch.Tensor]:
        """The rows and every part of the optimizer's state that has a row for each worker."""
        state = self.optimizer.state
        return [self.rows, *(state[self.workers.rows][name] for name in moments(self.optimizer))]

    def _to_consensus(self, rows: torch.Tensor) -> None:
        if self.at_copies:
            rows.copy_(self.shared)
        self.transport.mean_(rows)

    def synchronise(self) -> None:
        """Give every worker the consensus; gradients that are being taken go on from where they are."""
        self._leave_copies()
        super().synchronise()

    def state_dict(self) -> dict[str, Any]:
        """The base state, the clock of every worker, and the workers' copies [k, P]."""
        state = super().state_dict()
        state["workers"] |= {"copies": self.copies.clone()}
        return state | {name: list(getattr(self, name)) for name in ("gradients", "finish", "averages")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        for name in ("gradients", "finish", "averages"):
            setattr(self, name, list(state[name]))
        self.copies.copy_(state["workers"]["copies"])
        self.at_copies = False


def build(training: Training, options: adpsgd.ADPSGD) -> Algorithm:
    """AD-PSGD in simulated time, or with a thread in each process."""
    return AsynchronousPairs(training, options) if options.asynchronous else ADPSGD(training, options)
