"""Asynchronous decentralised parallel SGD as a deterministic sequence of events in simulated time."""

from collections.abc import Iterable

import torch
from torch import Tensor

from resync.formulas.topology import check_pairs, partner
from resync.streams import stream
from resync.sync.algorithm import Algorithm, Training
from resync.sync.options import every_step


class ADPSGD(Algorithm):
    """Asynchronous pairwise averaging in simulated time (Lian et al. 2018, as compared in Assran et al. 2019).

        every worker, repeatedly and at its own speed:
            compute a gradient at its copy z_r of x_r;   x_r = optimizer(x_r, gradient)
            active (odd) workers: x_r = x_s = (x_r + x_s) / 2 with the next partner s in their peer list
            z_r = x_r

    One step of the training loop is one unit of time. A worker whose gradient is not finished within this unit takes no
    step: its parameters and optimizer state do not change. Workers finish in the order of their times; ties are broken
    by their numbers. The gradient is that at z_r, which may be older than averages that partners have initiated since.

    `compute_times`: `constant`, 1 unit per gradient, so that all workers finish together, as in D-PSGD; `random`,
    uniform in [1, 2], drawn for every gradient; `straggler`, `slowdown` units for worker 0 and 1 unit for the others.
    With the last two, workers make fewer steps in the same time than in a synchronous algorithm.

    Raises ValueError for a topology without pairs, and for an optimizer that cannot step workers separately.
    """

    shared = ("gradients", "finish", "averages")
    per_worker = ("copies",)

    def __init__(self, training: Training, options: every_step.ADPSGD) -> None:
        super().__init__(training)
        self.options = options
        size = self.transport.num_workers
        check_pairs(options.topology, size)
        [group] = self.optimizer.param_groups
        self.parameters = group["params"]
        if len(self.parameters) != self.workers.num_local:
            raise ValueError("simulated AD-PSGD needs an optimizer with one parameter per worker (Workers.split)")
        self.gradients = [0] * size
        self.finish = [self._duration(worker) for worker in range(size)]
        self.averages = [0] * size
        # z, where each worker computes its gradient; x is saved meanwhile.
        self.copies = self.rows.clone()
        self.aside = self.rows.clone()
        self.at_copies = False

    def before_forward(self) -> None:
        """Load the workers' copies, at which gradients are computed."""
        self.aside.copy_(self.rows)
        self.rows.copy_(self.copies)
        self.at_copies = True

    def after_backward(self) -> None:
        """Restore the parameters to be stepped, and remove the gradients of workers that have not finished."""
        self._leave_copies()
        due, first = self._due(), self.transport.local.start
        for index, parameter in enumerate(self.parameters):
            parameter.grad = self.workers.grads[index].view_as(parameter) if first + index in due else None

    @torch.no_grad()
    def after_step(self, lr: float) -> bool:
        """Average the pairs of the workers that have finished; these start their next gradient."""
        pairs: dict[int, int] = {}
        starting: list[int] = []
        for worker in self._due():
            other = partner(self.options.topology, worker, self.transport.num_workers, self.averages[worker])
            if other is not None:
                if worker in pairs or other in pairs:
                    self._average(pairs, starting)
                    pairs, starting = {}, []
                pairs[worker], pairs[other] = other, worker
                self.averages[worker] += 1
            self.gradients[worker] += 1
            self.finish[worker] += self._duration(worker)
            if worker in pairs:
                starting.append(worker)
            else:
                self._start([worker])
        self._average(pairs, starting)
        return super().after_step(lr)

    def _average(self, pairs: dict[int, int], starting: list[int]) -> None:
        """Average disjoint pairs, whose order does not matter, in one exchange; some then start their next gradient."""
        if not pairs:
            return
        exchange = self.transport.post(
            self.rows, [[pairs[each]] if each in pairs else [] for each in range(self.transport.num_workers)]
        )
        [received] = exchange.wait()
        for index in self._here(pairs):
            self.rows[index].add_(received[index]).div_(2)
        exchange.release()
        self._start(starting)

    def _start(self, workers: Iterable[int]) -> None:
        """Take the copies at which the workers compute their next gradient."""
        for index in self._here(workers):
            self.copies[index] = self.rows[index]

    def _here(self, workers: Iterable[int]) -> list[int]:
        """The rows of those workers that are in this process."""
        local = self.transport.local
        return [worker - local.start for worker in workers if local.start <= worker < local.stop]

    def _leave_copies(self) -> None:
        if self.at_copies:
            self.rows.copy_(self.aside)
            self.at_copies = False

    def _due(self) -> list[int]:
        """The workers that finish a gradient in this unit of time, in the order in which they finish."""
        finished = [worker for worker, time in enumerate(self.finish) if time <= self.steps + 1]
        return sorted(finished, key=lambda worker: (self.finish[worker], worker))

    def _duration(self, worker: int) -> float:
        """Units of time for the worker's next gradient; at least 1, so that at most one ends in any unit."""
        if self.options.compute_times == "random":
            return float(stream(self.seed, f"compute time {self.gradients[worker]}", worker=worker).uniform(1, 2))
        return self.options.slowdown if self.options.compute_times == "straggler" and worker == 0 else 1.0

    def to_consensus(self, rows: Tensor) -> None:
        """The mean of the parameters, not of the copies."""
        if self.at_copies:
            rows.copy_(self.aside)
        self.transport.mean_(rows)

    def synchronise(self) -> None:
        """Give every worker the consensus; gradients in progress continue at the copies where they started."""
        self._leave_copies()
        super().synchronise()


def build(training: Training, options: every_step.ADPSGD) -> Algorithm:
    """AD-PSGD in simulated time, or with an averaging thread in each process."""
    if not options.asynchronous:
        return ADPSGD(training, options)
    from resync.sync.adpsgd_threads import AsynchronousPairs

    return AsynchronousPairs(training, options)
