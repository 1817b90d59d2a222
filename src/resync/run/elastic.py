"""A training whose workers may be lost and come back: the settings of such a run, and the algorithms that can go on."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field, Strict

from resync.formulas.topology import resolve
from resync.run.parts import SyncOptions
from resync.settings.base import Check, Count, Items, PositiveInt, PositiveNumber, Settings, wrong
from resync.settings.units import STEPS

_Step = Annotated[int, Field(ge=1), STEPS]
Absence = Annotated[tuple[Count, _Step, _Step | None], Strict(False)]
"""(worker, first step without it, step after which it is back, None if never)"""

ALLOWED = ("allreduce", "local", "slowmo", "diloco", "streaming_diloco", "sgp", "dpsgd")


class ElasticRun(Settings):
    """Workers that may be lost and come back; the others go on (docs/robustness.md has the rules)."""

    min_workers: PositiveInt | None = Field(
        default=None,
        description="workers without which nobody goes on; null: more than half, so that there are never two trainings",
    )
    timeout_seconds: PositiveNumber = Field(
        default=10.0,
        description="with a process for each worker, seconds that an exchange waits for a slow one before it goes on "
        "without it",
    )
    away: Items[Absence] | None = Field(
        default=None,
        description="[worker, first step without it, step after which it is back, or null: never], with all workers in "
        "one process: what it has done in the round of that first step is lost; null: all stay",
    )

    def needed(self, workers: int) -> int:
        return self.min_workers or workers // 2 + 1

    def is_away(self, worker: int, step: int) -> bool:
        return any(who == worker and first <= step <= (back or step) for who, first, back in self.away or ())

    def checks(self) -> Iterator[Check]:
        for index, (_, first, back) in enumerate(self.away or ()):
            if back is not None and back < first:
                yield wrong(("away", index), f"back after step {back}", f"at least {first}, the first step without it")

    def checks_for(self, workers: int) -> Iterator[Check]:
        """Require that enough workers are there at any time, and absences of workers that exist."""
        needed = self.needed(workers)
        if needed > workers:
            yield wrong("min_workers", needed, f"at most workers = {workers}")
        for index, (worker, first, _) in enumerate(self.away or ()):
            here = sum(not self.is_away(each, first) for each in range(workers))
            if worker >= workers:
                yield wrong(("away", index), f"worker {worker}", f"less than workers = {workers}")
            elif here < needed:
                yield wrong(("away", index), f"{here} workers left in step {first}", f"min_workers = {needed}")


def unfit(options: SyncOptions) -> Iterator[tuple[str, str]]:
    """What of an algorithm's options cannot go on with fewer workers, and what is allowed."""
    found: Any = options
    topology = options.traffic.topology if options.traffic and options.name in ("sgp", "dpsgd") else None
    for is_found, what, allowed in (
        (options.name not in ALLOWED, f"algorithm {options.name}", ", ".join(ALLOWED)),
        (getattr(found, "average_state", ()), "average_state", "none"),
        (getattr(found, "compression", None), "compression", "none"),
        (getattr(found, "buffers", "keep") == "average", "buffers: average", "keep or zero"),
        (not getattr(found, "average", True), "average: false", "true"),
        (getattr(found, "inner", None) is not None, f"inner: {getattr(found, 'inner', None)}", "none"),
        (getattr(found, "all_reduce", "default") != "default", "all_reduce", "default"),
        (topology and (resolve(topology).name == "hypercube" or getattr(resolve(topology), "bipartite", False)),
         f"topology {topology}", "one that exists for any number of workers, such as base_graph"),
    ):  # fmt: skip
        if is_found:
            yield what, allowed


def away(members: Sequence[tuple[int, Sequence[str]]]) -> list[tuple[str, int, int | None]]:
    """Who was away, from the members after each change: the name, the first step without it, and the step after which
    it was back, None if never.

    `members` are pairs of the step after which a change was made, and the members from then on.
    """
    gone: dict[str, int] = {}
    found: list[tuple[str, int, int | None]] = []
    for (_, before), (step, now) in pairwise([(0, ()), *members]):
        found += [(name, gone.pop(name), step) for name in sorted(set(now) & set(gone))]
        gone |= {name: step + 1 for name in sorted(set(before) - set(now))}
    return [*found, *((name, first, None) for name, first in gone.items())]
