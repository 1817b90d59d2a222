"""Cases that take turns, and what their measurements come to: medians with spread, ratios, goals."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

import numpy as np

from benchmarks.harness.processes import Failed

MIN_ROUNDS, MAX_ROUNDS = 3, 9

Measured = Mapping[str, float | Sequence[float]]
"""One number, or a list of them, for each measure by name."""


class Unavailable(Exception):
    """A case cannot be measured here; its text says why and stands in the results."""


@dataclass(frozen=True)
class Measure:
    """The unit of a measured number, and which values are better."""

    unit: str
    better: Literal["lower", "higher"]

    def best(self, values: Sequence[float]) -> float:
        """The best of some values."""
        return min(values) if self.better == "lower" else max(values)

    def meets(self, found: float, limit: float) -> bool:
        """Whether a number is as good as `limit`."""
        return found <= limit if self.better == "lower" else found >= limit


@dataclass(frozen=True)
class Case:
    """Something that is measured; ratios and goals compare cases of one group."""

    name: str
    measure: Callable[[], Measured]
    group: str = ""


@dataclass(frozen=True)
class Goal:
    """`case` is to be as good as `at`: a ratio to the best of the cases `beside`, or without these a number itself.

    It is for the first measure of the benchmark if none is named, and for every group that has the case, or for
    `group` alone.
    """

    case: str
    at: float
    beside: tuple[str, ...] = ()
    measure: str | None = None
    group: str | None = None


@dataclass(frozen=True)
class Benchmark:
    """What a benchmark file declares, as the package's docstring says.

    `code` are the files and folders of src/resync whose speed it measures.
    """

    title: str
    minutes: float
    measures: Mapping[str, Measure]
    cases: Sequence[Case]
    base: str
    code: Sequence[str]
    goals: Sequence[Goal] = ()
    notes: Sequence[str] = ()
    warm_up: Callable[[], object] = lambda: None
    close: Callable[[], object] = lambda: None


@dataclass
class _Found:
    """The measurements of a case: for each measure the values of every round."""

    rounds: dict[str, list[list[float]]] = field(default_factory=dict)
    reason: str | None = None

    def add(self, measured: Measured) -> None:
        for name, value in measured.items():
            values = [value] if isinstance(value, int | float) else list(value)
            self.rounds.setdefault(name, []).append([float(each) for each in values])

    def medians(self, measure: str) -> list[float]:
        """The median of every round."""
        return [median(values) for values in self.rounds.get(measure, [])]


Key = tuple[str, str]
"""Group and name of a case."""


def run(benchmark: Benchmark, say: Callable[[str], None] = lambda line: None, once: bool = False) -> dict[str, Any]:
    """Measure all cases in turns, and return the results without the environment; `once`: one round, and no goals."""
    found: dict[Key, _Found] = {(case.group, case.name): _Found() for case in benchmark.cases}
    if len(found) != len(benchmark.cases):
        raise ValueError(f"{benchmark.title}: two cases of a group have one name")
    started = time.monotonic()
    rounds = 0
    try:
        benchmark.warm_up()
        while rounds < (1 if once else MIN_ROUNDS) or (not once and _has_time(benchmark, started, rounds)):
            for case in benchmark.cases[:: 1 if rounds % 2 == 0 else -1]:
                _measure(case, found[case.group, case.name], say)
            rounds += 1
            say(f"round {rounds} after {time.monotonic() - started:.0f} s")
    finally:
        benchmark.close()
    return {
        "title": benchmark.title,
        "rounds": rounds,
        "seconds": round(time.monotonic() - started, 1),
        "minutes_allowed": benchmark.minutes,
        "base": benchmark.base,
        "measures": {name: asdict(measure) for name, measure in benchmark.measures.items()},
        "cases": [_summary(benchmark, key, found) for key in found],
        "goals": [] if once else [each for goal in benchmark.goals for each in _goal(benchmark, goal, found)],
        "notes": list(benchmark.notes),
    }


def _has_time(benchmark: Benchmark, started: float, rounds: int) -> bool:
    """Whether there is to be another round: one like those before would end in time."""
    spent = time.monotonic() - started
    return rounds < MAX_ROUNDS and spent + spent / rounds < 60 * benchmark.minutes


def _measure(case: Case, found: _Found, say: Callable[[str], None]) -> None:
    if found.reason is not None:
        return
    try:
        found.add(case.measure())
    except Unavailable as reason:
        found.reason = str(reason)
        say(f"{case.group} {case.name}: {reason}")
    except Failed as error:
        found.reason = f"failed: {str(error).strip().splitlines()[-1]}"
        say(f"{case.group} {case.name} failed: {error}")


def _summary(benchmark: Benchmark, key: Key, found: Mapping[Key, _Found]) -> dict[str, Any]:
    """The numbers of one case: of all its values, and the ratio to the base in each round."""
    group, name = key
    base = found.get((group, benchmark.base))
    numbers = {}
    for measure in benchmark.measures:
        values = [value for values in found[key].rounds.get(measure, []) for value in values]
        if not values:
            continue
        low, middle, high = np.percentile(values, [5, 50, 95])
        numbers[measure] = {"median": middle, "p5": low, "p95": high, "n": len(values)}
        if base is not None and (ratios := _ratios(found[key].medians(measure), base.medians(measure))):
            numbers[measure] |= {"ratio": median(ratios), "ratio_low": min(ratios), "ratio_high": max(ratios)}
    reason = {"unavailable": found[key].reason} if found[key].reason else {}
    return {"group": group, "name": name, **reason, "numbers": numbers}


def _ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Of the medians of every round that both have; none where the base is 0."""
    return [our / their for our, their in zip(ours, theirs, strict=False) if their]


def _goal(benchmark: Benchmark, goal: Goal, found: Mapping[Key, _Found]) -> list[dict[str, Any]]:
    """A goal in every group that has its cases, with what was measured; null where a case could not be."""
    name = goal.measure or next(iter(benchmark.measures))
    measure = benchmark.measures[name]
    groups = [group for group, case in found if case == goal.case and goal.group in (None, group)]
    groups = [group for group in groups if not goal.beside or any((group, other) in found for other in goal.beside)]
    if not groups:
        raise ValueError(f"{benchmark.title}: a goal is for the case {goal.case!r}, which does not exist")
    rows = []
    for group in groups:
        ours = found[group, goal.case].medians(name)
        others = {other: found[group, other].medians(name) for other in goal.beside if (group, other) in found}
        others = {other: medians for other, medians in others.items() if medians}
        best = min(others, key=lambda other: _order(measure, median(others[other]))) if others else None
        values = ours if not goal.beside else _ratios(ours, others[best]) if best else []
        reached = median(values) if values else None
        rows.append(
            {
                "group": group, "case": goal.case, "beside": best, "among": list(goal.beside), "measure": name,
                "limit": goal.at, "reached": reached, "met": reached is not None and measure.meets(reached, goal.at),
            }
        )  # fmt: skip
    return rows


def _order(measure: Measure, value: float) -> float:
    return value if measure.better == "lower" else -value
