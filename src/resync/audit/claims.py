"""Comparison of claims with the results on disk: one verdict and one reason per claim.

A claim that orders several series holds if each of its comparisons between neighbours holds at the claimed level. It
fails if one comparison fails at that level after a Bonferroni correction for the number of comparisons.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Literal

from resync.audit import curves, effects
from resync.audit.effects import Effect, p_text
from resync.audit.rows import CLAIM, OWN_CLAIM, ClaimRow, Ours, Side, ours_of, provenance
from resync.audit.values import (
    BEFOREHAND,
    different_hardware,
    known_beforehand,
    measured,
    of_imported,
    unfinished,
)
from resync.audit.verdicts import Verdict
from resync.paper.claim import LEAST_SEEDS, Claim, CurveTest
from resync.paper.paper import Blocks, Paper
from resync.results.runs import RunState
from resync.results.seed_values import SeedValues, difference_with_unit, effect_texts, number

Test = Literal["welch", "paired", "exact", "curves"]
TESTS = {"welch": "Welch's test", "paired": "the paired t test"}


@dataclass(frozen=True)
class ClaimSeries:
    """One series of a claim with the states of its runs."""

    name: str
    label: str
    states: list[RunState]
    claim: Claim
    blocks: Blocks

    @property
    def evidence(self) -> SeedValues:
        """The compared values: one per finished seed, or the one that follows from the configuration."""
        return self._found[0]

    @property
    def problem(self) -> str:
        """Why there are no values of the metric; empty if there are."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[SeedValues, str]:
        if self.claim.is_exact:
            return known_beforehand((state.run for state in self.states), self.claim.metric)
        return measured(self.states, self.claim.metric, self.claim.at_epoch)

    @property
    def by_seed(self) -> dict[int, float]:
        seeds = [state.run.seed for state in self.states if state.status == "finished"]
        return dict(zip(seeds, self.evidence.values, strict=True))

    @property
    def block_of(self) -> dict[int, object]:
        """By seed, what makes it comparable with those of other series: itself, or the run from which it starts."""
        runs = [state.run for state in self.states]
        return {run.seed: run.start_directory if self.blocks == "start" else run.seed for run in runs}

    def ours(self, scale: str) -> Ours:
        """The evidence in the form that rows show."""
        if not self.claim.is_exact:
            return ours_of(self.evidence, scale, self.states)
        text = f"{number(self.evidence.mean, 3)} ({BEFOREHAND})" if self.evidence.n else "none"
        return Ours(text, scale, mean=self.evidence.mean)


def test_of(claim: Claim, series: Iterable[ClaimSeries]) -> Test:
    """How a claim is decided; one over seeds is paired where its series have common blocks, models and data."""
    if not claim.is_tested:
        return "exact" if claim.is_exact else "curves"
    of_seed = {(one.blocks, *(getattr(run, name).model_dump_json() for name in ("model", "data")))
               for one in series for run in [state.run for state in one.states[:1]]}  # fmt: skip
    return "paired" if len(of_seed) == 1 else "welch"


def claim_row(paper: Paper, claim: Claim, groups: Mapping[tuple[str, str], list[RunState]], scale: str) -> ClaimRow:
    """The verdict on a claim at a scale; `groups` holds the states of the runs by (experiment, series)."""
    places = {name: claim.where(name) for name in claim.series}
    labels = {name: paper.experiments[place[0]].labels[place[1]] for name, place in places.items()}
    series = {
        name: ClaimSeries(name, labels[name], groups.get(place, []), claim, paper.experiments[place[0]].blocks)
        for name, place in places.items()
    }
    test = test_of(claim, series.values())
    runs = [state for one in series.values() for state in one.states]
    verdict = next(_obstacles(claim, test, list(series.values()), scale), None)
    found: tuple[Effect, ...] = ()
    sides = tuple(Side(one.name, one.label, one.ours(scale)) for one in series.values())
    if verdict is None and claim.curves:
        tested = _curves(claim.curves, series)
        verdict = of_imported(curves.verdict(tested), runs)
        sides = tuple(
            Side(test.series, name, Ours(curves.in_words(test, values), scale))
            for name, (test, values) in tested.items()
        )
    elif verdict is None:
        found = tuple(_effect(claim, test, series[better], series[than]) for better, than in claim.pairs)
        if claim.is_exact:
            verdict = _by_schedule(claim, found, labels)
        else:
            verdict = of_imported(_by_test(claim, test, found, labels), runs)
        if claim.hardware and verdict.word == "fails":
            verdict = Verdict("inconclusive", f"{verdict.reason}; but claimed for {claim.hardware}")
    return ClaimRow(
        paper=paper.id, kind=OWN_CLAIM if claim.is_ours else CLAIM, id=claim.id, statement=claim.statement,
        experiment=claim.experiment, metric=claim.metric, unit=claim.unit, direction=claim.direction,
        at_least=claim.at_least, test=test,
        confidence=claim.confidence if claim.is_tested else None, scale=scale, scales=claim.scales,
        at_epoch=claim.at_epoch, hardware=claim.hardware, status=claim.status, source=claim.source,
        sides=sides,
        effects=found, verdict=verdict.word, reason=verdict.reason,
        provenance=provenance(runs),
    )  # fmt: skip


def _curves(tests: Iterable[CurveTest], series: Mapping[str, ClaimSeries]) -> dict[str, tuple[CurveTest, list[float]]]:
    """The bounds with the values that must lie within them, by what they are of."""
    steps = {name: curves.steps_of(one.states) for name, one in series.items()}
    found = {}
    for test in tests:
        than = test.than or test.series
        divided = "" if than == test.series else f" / {series[than].label} ({than})"
        at = f", n = {', '.join(map(str, test.workers))}" if test.workers else ""
        at += f" / {', '.join(map(str, test.than_workers))}" if test.than_workers else ""
        of = {"seeds": "", "means": ", means", "median": ", median"}[test.of]
        name = f"{test.quantity} of {series[test.series].label} ({test.series}){divided}{of}{at}"
        found[name] = test, curves.values_of(test, steps[test.series], steps[than])
    return found


def _obstacles(claim: Claim, test: str, series: list[ClaimSeries], scale: str) -> Iterator[Verdict]:
    """Reasons why nothing can be compared, the most serious one first."""
    if scale not in claim.scales:
        allowed = ", ".join(claim.scales)
        yield Verdict("not comparable", f"meaningful at {allowed} scale, these runs are of {scale} scale")
    if claim.undecidable:
        yield Verdict("not comparable", f"cannot be decided as declared: {claim.undecidable}")
    if claim.is_exact:
        yield from (Verdict("not comparable", one.problem) for one in series if one.problem)
        return
    yield from _unfinished(claim, series)
    for one in series:
        if one.problem:
            yield Verdict("not comparable", one.problem)
        bad = [seed for seed, value in one.by_seed.items() if not SeedValues.of([value]).finite]
        if bad:
            yield Verdict("inconclusive", f"{one.label}: {claim.metric} of seed {bad[0]} is NaN or infinite")
    if other := different_hardware((state for one in series for state in one.states), claim.metric):
        yield other
    yield from _too_few(claim, test, series)


def _unfinished(claim: Claim, series: list[ClaimSeries]) -> Iterator[Verdict]:
    found = [(one.label, problem) for one in series if (problem := unfinished(one.states))]
    for kind in ("stale", "not run"):
        yield from (Verdict(kind, f"{label}: {each.reason}") for label, each in found if each.word == kind)
    for label, each in found:
        lacking = f": no {claim.metric} to compare" if each.word == "diverged" else ""
        yield Verdict("inconclusive", f"{label}: {each.word}, {each.reason}{lacking}")


def _too_few(claim: Claim, test: str, series: list[ClaimSeries]) -> Iterator[Verdict]:
    """A standard deviation needs two values: of each series, or of the differences at common seeds."""
    if claim.curves:
        return
    name = TESTS[test]
    if test == "welch":
        missing = [(one.label, LEAST_SEEDS - one.evidence.n) for one in series if one.evidence.n < LEAST_SEEDS]
        more = ", ".join(f"{count} more of {label}" for label, count in missing)
        if missing:
            yield Verdict("inconclusive", f"{name} needs {LEAST_SEEDS} seeds of each series: {more}")
        return
    by_name = {one.name: one for one in series}
    for better, than in ((by_name[better], by_name[than]) for better, than in claim.pairs):
        common = len({better.block_of[seed] for seed in better.by_seed.keys() & than.by_seed.keys()})
        if common < LEAST_SEEDS:
            more = f"{LEAST_SEEDS - common} more of {better.label} and {than.label}"
            yield Verdict("inconclusive", f"{name} needs {LEAST_SEEDS} common {better.blocks}s: {more}")


def samples(claim: Claim, test: str, better: ClaimSeries, than: ClaimSeries) -> list[SeedValues]:
    """What is compared, larger is better: the values of both series, or the differences at their common seeds."""
    sign = 1.0 if claim.direction == "higher" else -1.0
    if test == "paired":
        ours, theirs = better.by_seed, than.by_seed
        blocks: dict[object, list[float]] = defaultdict(list)
        for seed in ours.keys() & theirs.keys():
            blocks[better.block_of[seed]].append(sign * (ours[seed] - theirs[seed]))
        return [SeedValues.of(map(fmean, blocks.values()))]
    return [SeedValues.of(sign * value for value in one.evidence.values) for one in (better, than)]


def _effect(claim: Claim, test: str, better: ClaimSeries, than: ClaimSeries) -> Effect:
    compared = samples(claim, test, better, than)
    if claim.is_exact:
        return Effect(better.name, than.name, compared[0].mean - compared[1].mean)
    estimate = (effects.welch if test == "welch" else effects.paired)(*compared)
    low, high = estimate.interval(claim.confidence)
    p_values, n = estimate.p_values(claim.at_least), (compared[0].n, compared[-1].n)
    return Effect(better.name, than.name, estimate.value, low, high, *p_values, n)


def _by_schedule(claim: Claim, found: tuple[Effect, ...], labels: Mapping[str, str]) -> Verdict:
    """The verdict on numbers without spread; the smallest difference between neighbours decides."""
    step = min(found, key=lambda effect: effect.difference)
    word = "computed" if step.difference >= claim.at_least - effects.ROUNDING else "fails"
    return Verdict(word, f"{_step(claim, step, labels)}; {_needed(claim)}, {BEFOREHAND}")


def _by_test(claim: Claim, test: str, found: tuple[Effect, ...], labels: Mapping[str, str]) -> Verdict:
    """The verdict of the tests; the reason names the comparison that decides."""
    level = 1 - claim.confidence
    weakest = max(found, key=lambda effect: (effect.p_less, -effect.difference))
    worst = min(found, key=lambda effect: (effect.p_more, effect.difference))
    assert weakest.p_less is not None
    assert worst.p_more is not None
    if weakest.p_less < level:
        step, word, rejected = weakest, "holds", f"rejects a smaller effect: {p_text(weakest.p_less)}"
    elif (corrected := min(1.0, worst.p_more * len(found))) < level:
        step, word, rejected = worst, "fails", f"rejects the claimed effect: {p_text(corrected)}"
    elif weakest.low is None:
        step, word, rejected = weakest, "inconclusive", "is impossible without a spread: all seeds tie"
    else:
        step, word = weakest, "inconclusive"
        rejected = f"rejects neither a smaller effect ({p_text(weakest.p_less)}) nor the claimed one"
    n = " and ".join(str(count) for count in dict.fromkeys(step.n or ()))
    return Verdict(word, f"{_step(claim, step, labels)}; {_needed(claim)}, {TESTS[test]} {rejected} (n = {n})")


def _step(claim: Claim, effect: Effect, labels: Mapping[str, str]) -> str:
    """The effect in words; for a claim that orders series, with the two series."""
    where = f"{labels[effect.better]} over {labels[effect.than]}: " if claim.order else ""
    difference, *bounds = effect_texts(effect.difference, effect.low, effect.high)
    interval = f" ({100 * claim.confidence:g} % interval {' to '.join(bounds)})" if bounds else ""
    return f"{where}effect {difference_with_unit(difference, claim.unit)}{interval}"


def _needed(claim: Claim) -> str:
    return f"claimed: at least {claim.at_least:g}"
