"""The seeds that a claim needs, from pilot runs whose seeds decide no claim.

A claim is tested by two one-sided t tests at its confidence, whose power is that of `audit.effects`. An expected effect
above the claimed one is to show that the claim holds, one below it that it does not. One equal
to it shows neither, with any number of seeds.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scipy import optimize

from resync.base.text_tables import aligned
from resync.papers.audit.effects import FARTHEST, ROUNDING, pooled, power
from resync.papers.audit.sides import ClaimSeries, Test, samples, series_of, test_of
from resync.papers.audit.verdicts import MOST_SEEDS
from resync.papers.paper import Suite
from resync.papers.paper.claim import LEAST_SEEDS, Claim, least_seeds
from resync.papers.paper.paper import Paper
from resync.runs.metrics.registry import SECONDS_PER_HOUR
from resync.runs.results.runs import RunState, state_of
from resync.runs.results.seed_values import SeedValues

WANTED = 0.8
"""The power that is usually asked for."""


@dataclass(frozen=True)
class Power:
    """How many seeds a comparison of two series of a claim needs. Effects are positive if `better` is better.

    Attributes:
        claim: `paper/claim`; a claim that orders series has a comparison for each pair of neighbours.
        at_least: the claimed effect, in `unit`.
        declared: seeds of the two series at the scale; of a paired test, the common ones.
        expected: the effect that is expected at the scale; None if the claim declares none.
        shows: what the expected effect would show, `holds` or `fails`; None without one, or if it is the claimed one.
        std: standard deviation over seeds, pooled over the pilots of both series, or of differences at common seeds.
        degrees: its degrees of freedom.
        in_pilots: the effect in the pilots, a hint of what to expect and no more.
        seeds: seeds of each series with which the test has the wanted power; None if not even `MOST_SEEDS` suffice.
        power: the power with the declared seeds.
        detectable: smallest effect with which the claim is found to hold with the wanted power by the declared seeds.
        hours: wall-clock hours of the runs with `seeds`, one after the other, at the speed of the pilots.
        problem: why nothing is known of the spread; empty if it is known.
    """

    claim: str
    scale: str
    better: str
    than: str
    metric: str
    unit: str
    test: Test
    at_least: float
    declared: tuple[int, int]
    expected: float | None
    shows: str | None = None
    std: float | None = None
    degrees: int = 0
    in_pilots: float | None = None
    seeds: int | None = None
    power: float | None = None
    detectable: float | None = None
    hours: float | None = None
    problem: str = ""


def powers(suite: Suite, scale: str, results: Path, papers: Iterable[str], wanted: float = WANTED) -> list[Power]:
    """The comparisons of all claims that are tested over seeds at a scale, in the order of the files."""
    comparisons: list[Power] = []
    for name in papers:
        pilots: dict[tuple[str, str], list[RunState]] = defaultdict(list)
        seeds: dict[tuple[str, str], set[int]] = defaultdict(set)
        for run in suite.pilots(name, scale):
            pilots[run.experiment, run.series].append(state_of(run, results))
        for run in suite.runs(name, scale):
            seeds[run.experiment, run.series].add(run.seed)
        for claim in suite.papers[name].claims_at(scale):
            if scale in claim.scales and claim.is_tested and not claim.undecidable:
                comparisons += _of_claim(suite.papers[name], claim, scale, pilots, seeds, wanted)
    return comparisons


def _of_claim(
    paper: Paper,
    claim: Claim,
    scale: str,
    pilots: Mapping[tuple[str, str], list[RunState]],
    seeds: Mapping[tuple[str, str], set[int]],
    wanted: float,
) -> Iterator[Power]:
    series = series_of(paper, claim, pilots)
    test = test_of(claim, series.values())
    for names in claim.pairs:
        places = [claim.where(name) for name in names]
        first, second = (seeds.get(place, set()) for place in places)
        declared = (len(first), len(second)) if test == "welch" else (len(first & second),) * 2
        expected = next((effect for at, effect in claim.expected.items() if at == scale), None)
        shows = None
        if expected is not None and expected != claim.at_least:
            shows = "holds" if expected > claim.at_least else "fails"
        row = Power(
            f"{paper.id}/{claim.id}", scale, *names, claim.metric, claim.unit, test, claim.at_least, declared,
            expected, shows,
        )  # fmt: skip
        yield _with_spread(row, claim, series[names[0]], series[names[1]], wanted)


def _with_spread(row: Power, claim: Claim, better: ClaimSeries, than: ClaimSeries, wanted: float) -> Power:
    problem = next((f"{one.name}: {one.problem}" for one in (better, than) if one.problem), "")
    if problem:
        return replace(row, problem=problem)
    compared = samples(row.test, better, than)
    if not all(sample.finite for sample in compared):
        return replace(row, problem="no finished pilot runs")
    std, degrees = pooled(compared)
    level = 1 - claim.confidence
    if not degrees:
        common = "common " if row.test == "paired" else ""
        return replace(row, problem=f"the pilots have no {LEAST_SEEDS} {common}seeds")
    if std <= ROUNDING:
        return replace(row, problem="all seeds of the pilots tie")
    known = replace(
        row,
        std=std,
        degrees=degrees,
        in_pilots=compared[0].mean - sum(sample.mean for sample in compared[1:]),
        detectable=claim.at_least + detectable(row.test, std, row.declared, level, wanted),
    )
    if row.expected is None or row.shows is None:
        return known
    # One comparison of several that fails is found at the level of all of them together.
    level = level / len(claim.pairs) if row.shows == "fails" else level
    effect = abs(row.expected - claim.at_least)
    seeds = needed(row.test, effect, std, level, wanted, least_seeds(row.scale))
    hours = [_hours(one.states) for one in (better, than)]
    return replace(
        known,
        power=power(row.test, effect, std, row.declared, level),
        seeds=seeds,
        hours=None if seeds is None or None in hours else seeds * math.fsum(filter(None, hours)),
    )


def needed(
    test: str, effect: float, std: float, level: float, wanted: float = WANTED, least: int = LEAST_SEEDS
) -> int | None:
    """The smallest number of seeds of each series with which the test has the wanted power; None if above the most."""
    numbers = range(least, MOST_SEEDS + 1)
    place = bisect_left(numbers, wanted, key=lambda n: power(test, effect, std, (n, n), level))
    return numbers[place] if place < len(numbers) else None


def detectable(test: str, std: float, seeds: tuple[int, int], level: float, wanted: float = WANTED) -> float:
    """The smallest difference from the null hypothesis that the test finds with the wanted power."""
    if min(seeds) < LEAST_SEEDS:
        return math.inf
    smallest = optimize.brentq(lambda effect: power(test, effect, std, seeds, level) - wanted, 0, std * FARTHEST)
    return float(smallest)


def _hours(states: Iterable[RunState]) -> float | None:
    """The mean hours of training and evaluation of a series' finished pilots; None if they are not recorded."""
    results = [state.result for state in states if state.status == "finished" and state.result]
    clocks = [[result.summary["seconds"][name] for name in ("training", "evaluation")] for result in results]
    hours = SeedValues.of(math.fsum(clock) / SECONDS_PER_HOUR for clock in clocks if None not in clock)
    return hours.mean if hours.finite else None


def table(comparisons: Sequence[Power], wanted: float = WANTED) -> str:
    """An aligned text table of the comparisons, and how many of them have enough seeds."""
    lines = [_HEADINGS, *map(_cells, comparisons)]
    enough = sum(row.power is not None and row.power >= wanted for row in comparisons)
    more = sum(row.power is not None and row.power < wanted for row in comparisons)
    open_ends = {"no effect expected": [row for row in comparisons if row.shows is None and not row.problem]}
    open_ends |= {"no spread known": [row for row in comparisons if row.problem]}
    counts = [f"{enough} with enough seeds for a power of {wanted:g}", f"{more} with too few"]
    counts += [f"{len(rows)} with {words}" for words, rows in open_ends.items() if rows]
    problems = [f"{row.claim}, {row.better} and {row.than}: {row.problem}" for row in comparisons if row.problem]
    return "\n".join(
        [*aligned(lines, right=False), "", f"{len(comparisons)} comparisons: {', '.join(counts)}.", *problems]
    )


_HEADINGS = ("claim", "better", "than", "metric", "std (df)", "in pilots", "claimed", "expected", "detectable", "seeds",
             "power", "needed", "hours")  # fmt: skip


def _cells(row: Power) -> tuple[str, ...]:
    seeds = " and ".join(str(count) for count in dict.fromkeys(row.declared))
    needed = "-" if row.power is None else f"> {MOST_SEEDS}" if row.seeds is None else str(row.seeds)
    return (
        row.claim, row.better, row.than, f"{row.metric} ({row.unit}), {row.test}",
        "-" if row.std is None else f"{row.std:.3g} ({row.degrees})",
        *(_effect(value) for value in (row.in_pilots, row.at_least, row.expected, row.detectable)),
        seeds, "-" if row.power is None else f"{row.power:.2f}", needed,
        "-" if row.hours is None else f"{row.hours:.3g}",
    )  # fmt: skip


def _effect(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3g}"
