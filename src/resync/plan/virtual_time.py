"""Simulated times of runs that have a virtual clock, without training."""

from collections.abc import Iterator
from functools import partial

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


def virtual_seconds(run: Run) -> float:
    """The simulated time at the end of a run. Raises ValueError for one without a virtual clock."""
    steps = 0
    for event in events(run):
        if event.kind == "end":
            steps += sum(phase.steps for phase in event.phases)
            if steps >= run.workers * run.total_steps:
                return event.time
    raise AssertionError("events have no end")
