"""The virtual clock of a run: how long what its workers do takes in simulated time."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, Strict

from resync.base.settings.base import Check, Count, Items, NonNegativeNumber, PositiveNumber, Settings, Several, wrong

LinkName = Literal["ethernet_10g", "ethernet_25g", "infiniband_100g"]
"""A link between nodes, of `resync.papers.plan.network.LINKS`."""
Absence = Annotated[tuple[Count, NonNegativeNumber, PositiveNumber], Strict(False)]
"""(worker, second at which it leaves, second at which it is back)"""


class VirtualClock(Settings):
    """Simulated time, which depends on no machine; the same seed gives the same times."""

    step_seconds: Several[PositiveNumber] | None = Field(
        default=None,
        min_length=1,
        description="seconds of a local step: one number, or one for each worker; a straggler has a larger one",
    )
    jitter: PositiveNumber | None = Field(
        default=None,
        description="every step takes 1 to 1 + jitter times as long, uniform and drawn from the seed; null: none",
    )
    trace: Several[Several[PositiveNumber]] | None = Field(
        default=None,
        min_length=1,
        description="instead of step_seconds: recorded seconds of steps, of one worker or of each, over and over",
    )
    message_seconds: PositiveNumber | None = Field(
        default=None,
        description="seconds of a message of all parameters between two workers, or with a server "
        "(resync.papers.plan.network computes it); an average takes 2 (n - 1) / n of it, as in a ring; null: 0",
    )
    away: Items[Absence] | None = Field(
        default=None,
        description="[worker, second at which it leaves, second at which it is back]: what it computes then is lost; "
        "null: all stay",
    )

    def checks(self) -> Iterator[Check]:
        if (self.step_seconds is None) == (self.trace is None):
            yield wrong("step_seconds", "both or neither of step_seconds and trace", "one of them")
        if self.jitter and self.trace:
            yield wrong("jitter", f"{self.jitter:g} with trace", "null")
        for index, (_, leaves, back) in enumerate(self.away or ()):
            if back <= leaves:
                yield wrong(("away", index), f"back at {back:g}", f"more than {leaves:g}, when it leaves")

    def checks_for(self, workers: int) -> Iterator[Check]:
        """Require a time for each worker, and absences of workers that exist."""
        for name in ("step_seconds", "trace"):
            value = getattr(self, name)
            if value is not None and len(value) not in (1, workers):
                yield wrong(name, f"{len(value)} entries", f"1, or workers = {workers}")
        for index, (worker, _, _) in enumerate(self.away or ()):
            if worker >= workers:
                yield wrong(("away", index), f"worker {worker}", f"less than workers = {workers}")

    def pace(self, worker: int) -> float:
        """Mean seconds of a step of a worker, without jitter."""
        if self.trace:
            recorded = self.trace[worker % len(self.trace)]
            return sum(recorded) / len(recorded)
        assert self.step_seconds
        return self.step_seconds[worker % len(self.step_seconds)]

    def seconds(self, seed: int, worker: int, first: int, steps: int) -> float:
        if self.trace:
            recorded = self.trace[worker % len(self.trace)]
            return sum(recorded[step % len(recorded)] for step in range(first, first + steps))
        if not self.jitter:
            return steps * self.pace(worker)
        from resync.base.streams import stream  # only here: it imports numpy

        drawn = stream(seed, "step times", worker=worker, epoch=first).random(steps)
        return float((1 + self.jitter * drawn).sum()) * self.pace(worker)

    def average(self, workers: int) -> float:
        return 2 * (workers - 1) / workers * (self.message_seconds or 0.0)

    def end(self, seed: int, worker: int, start: float, number: int) -> float:
        """When a worker has finished its step `number`, which it starts now, or when it is back."""
        while True:
            end = start + self.seconds(seed, worker, number, 1)
            back = self.back(worker, start, end)
            if back is None:
                return end
            start = back

    def back(self, worker: int, start: float, end: float) -> float | None:
        """When a worker is back that is away at a time from `start` to before `end`; None: it is never."""
        returns = [back for who, leaves, back in self.away or () if who == worker and leaves < end and back > start]
        return max(returns, default=None)

    def away_at(self, worker: int, time: float) -> bool:
        return any(who == worker and leaves <= time < back for who, leaves, back in self.away or ())
