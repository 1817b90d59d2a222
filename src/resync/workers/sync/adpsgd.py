"""Asynchronous decentralised parallel SGD as a deterministic sequence of events in simulated time."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from resync.workers.formulas.clock import VirtualClock
from resync.workers.formulas.topology import partner, peer_list
from resync.workers.sync.algorithm import Algorithm, Due, Training
from resync.workers.sync.options import ADPSGD


class ADPSGDAlgorithm(Algorithm):
    """Asynchronous pairwise averaging in simulated time (Lian et al. 2018, as compared in Assran et al. 2019).

        every worker, repeatedly and at its own speed (the run's virtual clock):
            compute a gradient at its copy z_r of x_r;   x_r = optimizer(x_r, gradient)
            active (odd) workers: x_r = x_s = (x_r + x_s) / 2 with the next partner s in their peer list
            z_r = x_r

    Events are strictly sequential: an average contains the steps that partners have finished until then, and no later
    ones. Of workers that finish at the same time, all step before the first of them averages, in the order of their
    numbers; without a clock all always do, so that the averages are those of D-PSGD. The gradient is that at z_r, which
    may be older than averages that partners have initiated since. Nobody averages with a worker that is away, and
    messages take no time that a worker waits for. `rows` are z between two steps; `steps` the gradients of all workers
    divided by their number.

    Raises ValueError for an odd number of workers, and for an optimizer that cannot step workers separately.
    """

    shared = ("averages", "finished", "ends", "now")
    per_worker = ("x",)

    def __init__(self, training: Training, options: ADPSGD) -> None:
        super().__init__(training)
        self.size = self.transport.num_workers
        peer_list(options.topology, 0, self.size)  # raises for an odd number, before the first step
        self.topology = options.topology
        self.timed = training.clock is not None
        self.clock = training.clock or VirtualClock(step_seconds=(1.0,))
        self.averages, self.finished, self.now = [0] * self.size, [0] * self.size, 0.0
        self.ends = [self.clock.end(self.seed, worker, 0.0, 0) for worker in range(self.size)]
        self.x = self.rows.clone()

    def _ending(self) -> list[int]:
        """The workers whose gradients are finished next, at the same time."""
        return [worker for worker, end in enumerate(self.ends) if end == min(self.ends)]

    def due(self) -> Sequence[Due] | None:
        if not self.timed:
            return None
        return [Due(worker, worker, self.finished[worker]) for worker in self._ending()]

    @property
    def next_steps(self) -> int:
        return (sum(self.finished) + len(self._ending())) // self.size

    @property
    def virtual_seconds(self) -> float | None:
        return self.now if self.timed else None

    @torch.no_grad()
    def after_backward(self) -> None:
        """Load the parameters to be stepped, and let only the workers that have finished take a step."""
        ending = self.transport.here(self._ending())
        self._copy(ending)
        self.workers.step_only(ending)

    @torch.no_grad()
    def after_step(self, lr: float) -> bool:
        before, self.steps, self.now = self.steps, self.next_steps, min(self.ends)
        pairs: dict[int, int] = {}
        starting: list[int] = []
        ending = self._ending()
        for index in self.transport.here(ending):
            self.x[index] = self.rows[index]
        for worker in ending:
            self.finished[worker] += 1
            self.ends[worker] = self.clock.end(self.seed, worker, self.now, self.finished[worker])
            other = partner(self.topology, worker, self.size, self.averages[worker])
            if other is not None and not self.clock.away_at(other, self.now):
                if worker in pairs or other in pairs:
                    self._average(pairs, starting)
                    pairs, starting = {}, []
                pairs[worker], pairs[other] = other, worker
                self.averages[worker] += 1
            if worker in pairs:
                starting.append(worker)
            else:
                self._copy(self.transport.here([worker]))
        self._average(pairs, starting)
        self.rounds = self.steps
        return self.steps > before

    def _average(self, pairs: dict[int, int], starting: list[int]) -> None:
        """Average disjoint pairs, whose order does not matter, in one exchange; some then start their next gradient."""
        if not pairs:
            return
        exchange = self.transport.post(
            self.x, tuple((pairs[worker],) if worker in pairs else () for worker in range(self.size))
        )
        [received] = exchange.wait()
        for index in self.transport.here(pairs):
            self.x[index].div_(2).add_(received[index], alpha=0.5)
        exchange.release()
        self._copy(self.transport.here(starting))

    def _copy(self, local: Iterable[int]) -> None:
        """Put x of local workers into their rows: to be stepped, or as z, the copy for the next gradient."""
        for index in local:
            self.rows[index] = self.x[index]

    def own_rows(self) -> Tensor:
        return self.x

    def to_consensus(self, rows: Tensor) -> None:
        rows.copy_(self.x)
        self.transport.mean_(rows)

    def synchronise(self) -> None:
        super().synchronise()
        self.x.copy_(self.rows)


def build(training: Training, options: ADPSGD) -> Algorithm:
    """AD-PSGD in simulated time, or with an averaging thread in each process."""
    if not options.asynchronous:
        return ADPSGDAlgorithm(training, options)
    from resync.workers.sync.adpsgd_threads import AsynchronousPairs

    return AsynchronousPairs(training, options)
