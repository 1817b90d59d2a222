"""Asynchronous Local SGD: a server that takes the change of every worker when it comes, in simulated time."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from resync.workers.formulas.phases import Event, Phase
from resync.workers.sync.algorithm import Algorithm, Due, Training
from resync.workers.sync.options.asynchronous import AsyncLocalSGD
from resync.workers.sync.outer import outer_step_


class Server(Algorithm):
    """Local steps in phases, and outer steps with what comes to a server (Liu et al. 2024).

        a worker starts (resync.workers.formulas.phases says when):  y = x;  new optimizer state, unless it is kept;
            H steps from y to y_H
        its change D = y - y_H comes, and the server, with weight a, momentum m and outer rate e, does
            each:    b = m b + a D;   x = x - e b
            buffer:  S = S + a D, and after as many changes as there are workers:  b = m b + S;  x = x - e b;  S = 0
            mean:    (all changes come together)  b = m b + mean D;  x = x - e b
            delayed_nesterov:  S = S + D;  x = x - e D / K, and after as many changes as there are workers, K, before it
                b = m b + S / K;  x = x - e m b;  S = 0

    A phase is computed when it ends, from what the worker copied at its start: events are strictly sequential.
    Delayed Nesterov is that of the code of HALoS (utnslab/halos) with activation 0; with one worker it is Nesterov's
    form of `resync.workers.sync.outer`. `consensus` is the server's model, `rounds` the changes that it has taken,
    divided by the number of workers.
    """

    shared: ClassVar[tuple[str, ...]] = (
        "server",
        "buffer",
        "total",
        "ends",
        "taken",
        "phase",
        "local_steps",
        "gradients",
    )
    per_worker: ClassVar[tuple[str, ...]] = ("starts",)

    def __init__(self, training: Training, options: AsyncLocalSGD) -> None:
        super().__init__(training)
        assert training.clock is not None
        self.options, self.clock, self.choices = options, training.clock, training.choices
        self.h = options.h
        self.size = self.transport.num_workers
        self.weight = options.weight or 1 / self.size
        self.server = self.rows[:1].clone()
        self.buffer, self.total = torch.zeros_like(self.server), torch.zeros_like(self.server)
        self.starts = self.rows.clone()
        self.ends = self.taken = self.phase = self.local_steps = self.gradients = 0
        self._find_events()

    def _find_events(self) -> None:
        """Go to the end that comes next; the starts before it have been carried out."""
        self.events = self.options.timetable(self.size, self.clock, self.seed, self.choices).events()
        self.end = self._next_end([])
        self.now = 0.0
        for _ in range(self.ends):
            self.now = self.end.time
            self.end = self._next_end([])

    def _next_end(self, starting: list[Phase]) -> Event:
        """The end that comes next; the phases that start before it are added to `starting`."""
        for event in self.events:
            if event.kind == "end":
                return event
            starting += event.phases
        raise AssertionError("events have no end")

    @property
    def virtual_seconds(self) -> float:
        """The time of the last change that the server has taken."""
        return self.now

    def due(self) -> Sequence[Due]:
        phase = self.end.phases[self.phase]
        return [Due(phase.worker, phase.stream, phase.first + self.local_steps)]

    @property
    def next_steps(self) -> int:
        return (self.gradients + 1) // self.size

    @property
    def lr_step(self) -> int:
        """The number of the batch in its data stream, up to the end of the schedule."""
        if self.options.peak_first and self.local_steps == 0:
            return 0
        return int(min(self.end.phases[self.phase].first + self.local_steps, self.total_steps))

    def after_backward(self) -> None:
        self.workers.step_only(self._here())

    @torch.no_grad()
    def after_step(self, lr: float) -> bool:
        self.steps = self.next_steps
        self.gradients += 1
        self.local_steps += 1
        if self.local_steps < self.end.phases[self.phase].steps:
            return False
        self._give_change()
        self.taken += 1
        rounds, self.rounds = self.rounds, self.taken // self.size
        return self.rounds > rounds

    def _give_change(self) -> None:
        """Hand over the change of the phase; when the server has taken those that come together, go on."""
        worker = self.end.phases[self.phase].worker
        for index in self._here():
            self.starts[index].sub_(self.rows[index])
            if self.options.optimizer_state is None:
                self.optimizer.state.pop(self.optimizer.param_groups[0]["params"][index], None)
        self._take(self.transport.row_of(self.starts, worker))
        self.local_steps = 0
        self.phase += 1
        if self.phase < len(self.end.phases):
            return
        self.phase, self.now = 0, self.end.time
        self.ends += 1
        starting: list[Phase] = []
        self.end = self._next_end(starting)
        for index in self.transport.here(phase.worker for phase in starting):
            self.rows[index], self.starts[index] = self.server[0], self.server[0]

    def _take(self, change: Tensor) -> None:
        given = self.options
        if given.server == "delayed_nesterov":
            self.total.add_(change, alpha=1 / self.size)
            self.server.sub_(change, alpha=given.lr / self.size)
            if self.end.version % self.size == 0:
                self.buffer.mul_(given.momentum).add_(self.total)
                self.server.sub_(self.buffer, alpha=given.lr * given.momentum)
                self.total.zero_()
            return
        if given.server == "mean":
            last = self.phase + 1 == len(self.end.phases)
            self.total.add_(change)
            if last:
                self.total.div_(len(self.end.phases))
        else:
            last = given.server == "each" or self.end.version % self.size == 0
            self.total.add_(change, alpha=self.weight)
        if last:
            outer_step_(self.server, self.buffer, self.total, lr=given.lr, momentum=given.momentum, nesterov=False)
            self.total.zero_()

    def _here(self) -> list[int]:
        """The row of the phase's worker, if it is in this process."""
        return self.transport.here([self.end.phases[self.phase].worker])

    def to_consensus(self, rows: Tensor) -> None:
        rows.copy_(self.server.expand_as(rows))

    def synchronise(self) -> None:
        """Nothing: workers get the server's model when they start."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._find_events()


build = Server
