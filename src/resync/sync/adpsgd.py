"""Asynchronous decentralised parallel SGD in simulated time, and so repeatable."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from resync.formulas.topology import check_pairs, partner
from resync.streams import stream
from resync.sync.algorithm import Algorithm, Training
from resync.sync.options import every_step


class ADPSGD(Algorithm):
    """Asynchronous pairwise averaging in simulated time (Lian et al. 2018, as compared in Assran et al. 2019).

        every worker, repeatedly and at its own speed (`Clock`):
            compute a gradient at its copy z_r of x_r;   x_r = optimizer(x_r, gradient)
            active (odd) workers: x_r = x_s = (x_r + x_s) / 2 with the next partner s in their peer list
            z_r = x_r

    A worker whose gradient is not finished within a step of the training loop takes no step: its parameters and
    optimizer state do not change. The gradient is that at z_r, which may be older than averages that partners have
    initiated since. `rows` are z between two steps.

    Within a step of the training loop, one unit of time, all gradients that end in it are applied first, and then the
    averages follow in the order in which the gradients ended. So an average may hold a gradient of the partner that
    ended later within the same unit, which a strict sequence of events would not have.

    Raises ValueError for a topology without pairs, and for an optimizer that cannot step workers separately.
    """

    shared = ("averages",)
    per_worker = ("x",)
    parts = ("clock",)

    def __init__(self, training: Training, options: every_step.ADPSGD) -> None:
        super().__init__(training)
        size = self.transport.num_workers
        check_pairs(options.topology, size)
        self.topology = options.topology
        self.clock = Clock(options, size, self.seed)
        self.averages = [0] * size
        self.x, self.z = self.rows.clone(), self.rows.clone()

    @torch.no_grad()
    def after_backward(self) -> None:
        """Load the parameters to be stepped, and let only the workers that have finished take a step."""
        self.z.copy_(self.rows)
        self.rows.copy_(self.x)
        self.workers.step_only(self._here(self.clock.finished(self.steps + 1)))

    @torch.no_grad()
    def after_step(self, lr: float) -> bool:
        """Average the pairs of the workers that have finished; these start their next gradient."""
        pairs: dict[int, int] = {}
        starting: list[int] = []
        for worker in self.clock.finished(self.steps + 1):
            self.clock.start_gradient(worker)
            other = partner(self.topology, worker, self.transport.num_workers, self.averages[worker])
            if other is not None:
                if worker in pairs or other in pairs:
                    self._average(pairs, starting)
                    pairs, starting = {}, []
                pairs[worker], pairs[other] = other, worker
                self.averages[worker] += 1
            if worker in pairs:
                starting.append(worker)
            else:
                self._copy([worker])
        self._average(pairs, starting)
        self.x.copy_(self.rows)
        self.rows.copy_(self.z)
        return super().after_step(lr)

    def _average(self, pairs: dict[int, int], starting: list[int]) -> None:
        """Average disjoint pairs, whose order does not matter, in one exchange; some then start their next gradient."""
        if not pairs:
            return
        exchange = self.transport.post(
            self.rows, tuple((pairs[each],) if each in pairs else () for each in range(self.transport.num_workers))
        )
        [received] = exchange.wait()
        for index in self._here(pairs):
            self.rows[index].add_(received[index]).div_(2)
        exchange.release()
        self._copy(starting)

    def _copy(self, workers: Iterable[int]) -> None:
        """Take the copies at which the workers compute their next gradient."""
        for index in self._here(workers):
            self.z[index] = self.rows[index]

    def _here(self, workers: Iterable[int]) -> list[int]:
        """The rows of those workers that are in this process."""
        local = self.transport.local
        return [worker - local.start for worker in workers if local.start <= worker < local.stop]

    def own_rows(self) -> Tensor:
        """x."""
        return self.x

    def to_consensus(self, rows: Tensor) -> None:
        """The mean of x."""
        rows.copy_(self.x)
        self.transport.mean_(rows)

    def synchronise(self) -> None:
        """Give every worker the mean of x, as x and z."""
        super().synchronise()
        self.x.copy_(self.rows)


class Clock:
    """Simulated time: one step of the training loop is one unit, in which every worker finishes one gradient at most.

    `compute_times`: `constant`, 1 unit per gradient, so that all workers finish together, as in D-PSGD; `random`,
    uniform in [1, 2], drawn for every gradient; `straggler`, `slowdown` units for worker 0 and 1 unit for the others.
    With the last two, workers make fewer steps in the same time than in a synchronous algorithm.

    Attributes: `gradients` (completed by each worker), `finish` (the time at which each worker's gradient is finished).
    """

    def __init__(self, options: every_step.ADPSGD, num_workers: int, seed: int) -> None:
        self.options, self.seed = options, seed
        self.gradients = [0] * num_workers
        self.finish = [self._duration(worker) for worker in range(num_workers)]

    def finished(self, time: float) -> list[int]:
        """The workers that have finished a gradient by `time`, in the order in which they did; ties by number."""
        found = [worker for worker, finish in enumerate(self.finish) if finish <= time]
        return sorted(found, key=lambda worker: (self.finish[worker], worker))

    def start_gradient(self, worker: int) -> None:
        """Let a worker that has finished a gradient start its next one at once."""
        self.gradients[worker] += 1
        self.finish[worker] += self._duration(worker)

    def state_dict(self) -> dict[str, Any]:
        return {"gradients": list(self.gradients), "finish": list(self.finish)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.gradients, self.finish = list(state["gradients"]), list(state["finish"])

    def _duration(self, worker: int) -> float:
        if self.options.compute_times == "random":
            return float(stream(self.seed, f"compute time {self.gradients[worker]}", worker=worker).uniform(1, 2))
        return self.options.slowdown if self.options.compute_times == "straggler" and worker == 0 else 1.0


def build(training: Training, options: every_step.ADPSGD) -> Algorithm:
    """AD-PSGD in simulated time, or with an averaging thread in each process."""
    if not options.asynchronous:
        return ADPSGD(training, options)
    from resync.sync.adpsgd_threads import AsynchronousPairs

    return AsynchronousPairs(training, options)
