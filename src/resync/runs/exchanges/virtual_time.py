"""Simulated times of runs that have a virtual clock, without training."""

from collections.abc import Iterator
from functools import partial
from heapq import heapify, heapreplace
from typing import Literal, NamedTuple

from resync.base.errors import UserError
from resync.runs.run import Run
from resync.workers.formulas.clock import VirtualClock
from resync.workers.formulas.phases import Timetable


class Stretch(NamedTuple):
    """What a worker does from `start` to `end`, in simulated seconds."""

    worker: int
    doing: Literal["computes", "waits", "is away"]
    start: float
    end: float


def stretches(run: Run, until: float) -> list[Stretch]:
    """What every worker of a run does until a simulated time; sending and receiving is part of computing.

    Raises ValueError for a run without times of events.
    """
    phases, clock = timetable(run), run.clock
    assert clock
    steps, idle_since, periods = [0] * run.workers, [0.0] * run.workers, list[Stretch]()
    for event in phases.events():
        if event.time >= until:
            break
        for phase in event.phases if event.kind == "start" else ():
            worker = phase.worker
            periods += _idle(clock, worker, idle_since[worker], event.time)
            end = event.time + phases.seconds(worker, steps[worker], phase.steps)
            leaves = (leaves for who, leaves, _ in clock.away or () if who == worker and event.time <= leaves < end)
            idle_since[worker] = min(leaves, default=end)
            steps[worker] += phase.steps
            periods.append(Stretch(worker, "computes", event.time, min(idle_since[worker], until)))
    for worker, since in enumerate(idle_since):
        periods += _idle(clock, worker, since, until)
    return periods


def _idle(clock: VirtualClock, worker: int, start: float, end: float) -> Iterator[Stretch]:
    for who, leaves, back in sorted(clock.away or ()):
        if who == worker and leaves < end and back > start:
            if leaves > start:
                yield Stretch(worker, "waits", start, leaves)
            yield Stretch(worker, "is away", max(start, leaves), min(back, end))
            start = min(back, end)
    if start < end:
        yield Stretch(worker, "waits", start, end)


def timetable(run: Run) -> Timetable:
    """The phases of a run. Raises ValueError for one without a virtual clock."""
    from numpy.random import RandomState  # only here: the import is slow

    chosen = partial(RandomState, run.seed) if run.random_numbers else None
    phases = run.sync.timetable(run.workers, run.clock, run.seed, chosen) if run.clock else None
    if phases is None:
        raise UserError(f"{run.id}: found sync {run.sync.name} without times of events, allowed: one with a clock")
    return phases


def virtual_seconds(run: Run, epoch: float | None = None) -> float:
    """The simulated time at the end of a run, or at an epoch. Raises ValueError for one without a virtual clock."""
    wanted = run.total_steps if epoch is None else round(epoch * run.steps_per_epoch)
    if not wanted:
        return 0.0
    steps = 0
    for taken, time in _ends(run):
        steps += taken
        if steps >= run.workers * wanted:
            return time
    raise AssertionError("events have no end")


def rounds_by_clock(run: Run) -> int:
    """The rounds of a run whose workers take turns by a virtual clock: the phases that end in it, by worker."""
    steps = phases = 0
    for event in timetable(run).events():
        if event.kind == "end":
            steps += sum(phase.steps for phase in event.phases)
            phases += len(event.phases)
            if steps >= run.workers * run.total_steps:
                return phases // run.workers
    raise AssertionError("events have no end")


def _ends(run: Run) -> Iterator[tuple[int, float]]:
    """The local steps that have ended, and when, without end."""
    clock = run.clock
    if clock is None or run.sync.needs.virtual_clock:
        ends = (event for event in timetable(run).events() if event.kind == "end")
        yield from ((sum(phase.steps for phase in event.phases), event.time) for event in ends)
        return
    queue = [(clock.end(run.seed, worker, 0.0, 0), worker, 0) for worker in range(run.workers)]
    heapify(queue)
    while True:
        time, worker, number = queue[0]
        yield 1, time
        heapreplace(queue, (clock.end(run.seed, worker, time, number + 1), worker, number + 1))
