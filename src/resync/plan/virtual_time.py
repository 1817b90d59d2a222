"""Simulated times of runs that have a virtual clock, without training."""

from collections.abc import Iterator
from functools import partial
from heapq import heapify, heapreplace

from resync.errors import UserError
from resync.formulas.phases import Event
from resync.run import Run


def events(run: Run) -> Iterator[Event]:
    """The starts and ends of a run's phases, without end. Raises ValueError for one without a virtual clock."""
    from numpy.random import RandomState  # only here: the import is slow

    chosen = partial(RandomState, run.seed) if run.random_numbers else None
    phases = run.sync.timetable(run.workers, run.clock, run.seed, chosen) if run.clock else None
    if phases is None:
        raise UserError(f"{run.id}: found sync {run.sync.name} without times of events, allowed: one with a clock")
    return phases.events()


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


def _ends(run: Run) -> Iterator[tuple[int, float]]:
    """The local steps that have ended, and when, without end."""
    clock = run.clock
    if clock is None or run.sync.needs.virtual_clock:
        ends = (event for event in events(run) if event.kind == "end")
        yield from ((sum(phase.steps for phase in event.phases), event.time) for event in ends)
        return
    queue = [(clock.end(run.seed, worker, 0.0, 0), worker, 0) for worker in range(run.workers)]
    heapify(queue)
    while True:
        time, worker, number = queue[0]
        yield 1, time
        heapreplace(queue, (clock.end(run.seed, worker, time, number + 1), worker, number + 1))
