"""Comparison of claims with the results on disk: one verdict and one reason per claim.

A claim that orders several series holds if each of its comparisons between neighbours holds at the claimed level. It
is rejected if one comparison is, at that level after a Bonferroni correction for the number of comparisons. Outside of
its regime (`audit.regime`) a claim neither holds nor is rejected, whatever the tests say.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from resync.papers.audit import curves, effects, regime
from resync.papers.audit.effects import Effect, p_text
from resync.papers.audit.in_words import ALL_THE_SAME
from resync.papers.audit.rows import CLAIM, OWN_CLAIM, ClaimRow, Ours, Side, provenance
from resync.papers.audit.sides import ClaimSeries, Groups, Test, published_effect, samples, series_of, test_of
from resync.papers.audit.values import BEFOREHAND, different_hardware, of_imported, unfinished
from resync.papers.audit.verdicts import (
    AGREES,
    ARITHMETIC,
    BY_RUNS,
    DISAGREES,
    FAILURES,
    NOT_COMPARABLE,
    OPEN,
    OTHER_SCALE,
    OUTSIDE,
    SMALLER,
    TOO_FEW,
    UNTESTED,
    Verdict,
)
from resync.papers.paper.claim import REDUCED, TEST_RULE, Claim, CurveTest, fingerprint, least_seeds
from resync.papers.paper.paper import Paper
from resync.runs.metrics.registry import METRICS
from resync.runs.results.runs import RunState
from resync.runs.results.seed_values import difference_with_unit, effect_texts
from resync.runs.results.summary import first_started
from resync.runs.run.in_words import trained_here
from resync.workers.formulas import rounding

TESTS = {"welch": "Welch's test", "paired": "the paired t test", "ranks": "the test of ranks"}


def claim_row(paper: Paper, claim: Claim, groups: Groups, scale: str) -> ClaimRow:
    """The verdict on a claim at a scale."""
    groups = {place: [state for state in states if state.run.seed not in claim.chosen_on]
              for place, states in groups.items()}  # fmt: skip
    series = series_of(paper, claim, groups)
    runs = [state for one in series.values() for state in one.states]
    test = test_of(claim, series.values())
    differences: tuple[Effect, ...] = ()
    sides = tuple(Side(one.name, one.label, one.ours(scale)) for one in series.values())
    verdict = next(_obstacles(claim, test, list(series.values()), scale), None)
    if verdict is None and claim.curves:
        tested = _curves(claim.curves, series)
        verdict = of_imported(curves.verdict(tested), runs)
        sides = tuple(
            Side(test.series, name, Ours(curves.in_words(test, values), scale))
            for name, (test, values) in tested.items()
        )
    elif verdict is None:
        least = _least_of_interest(claim, published_effect(paper, claim, scale))
        differences = tuple(_effect(claim, test, series[better], series[than], least) for better, than in claim.pairs)
        labels = {name: one.label for name, one in series.items()}
        if claim.is_exact:
            verdict = _by_schedule(claim, differences, labels)
        else:
            verdict = of_imported(_by_test(claim, test, differences, labels), runs)
            verdict = _same_trainings(claim, series) or _in_regime(verdict, paper, claim, groups, scale)
        if claim.hardware and verdict.word in FAILURES:
            verdict = Verdict(OPEN, NOT_COMPARABLE, f"{verdict.reason}; but claimed for {claim.hardware}")
    published = published_effect(paper, claim, scale)
    fixed, exploratory = _fixed(paper, claim, runs, groups, scale)
    return ClaimRow(
        paper=paper.id, kind=OWN_CLAIM if claim.is_ours else CLAIM, id=claim.id,
        statement=_statement(claim, runs, scale),
        experiment=claim.experiment, metric=claim.metric, unit=claim.unit, direction=claim.direction,
        at_least=claim.at_least, test=test,
        confidence=claim.confidence if claim.is_tested else None, scale=scale, scales=claim.scales,
        at_epoch=claim.at_epoch, hardware=claim.hardware, status=claim.status, source=claim.source,
        sides=sides,
        effects=differences, verdict=verdict.word, because=verdict.because, reason=verdict.reason,
        provenance=provenance(runs), headline=claim.headline, fixed=fixed,
        exploratory=exploratory,
        published_effect=published,
        power=_power(claim, test, series, published) if differences and published is not None else None,
    )  # fmt: skip


def _fixed(paper: Paper, claim: Claim, runs: list[RunState], groups: Groups, scale: str) -> tuple[str, str]:
    """In which commit the claim was fixed, and why its test is exploratory: what was younger than a run that shows it.

    Both are empty without results, and for what follows from the configuration. Runs of the grids with which its series
    are tuned show its sign, too.
    """
    declared = next(one for one in paper.claims if one.id == claim.id)
    experiment, known = paper.experiments[claim.experiment], paper.fixed.get(claim.id, {})
    results = [state.result for state in runs if state.result]
    if claim.is_exact or not results:
        return "", ""
    grids = [experiment.tuned.grid.get(name, ()) for where, name in claim.compared
             if experiment.tuned and where == claim.experiment]  # fmt: skip
    results += [state.result for grid in grids for name in grid for state in groups.get(claim.where(name), [])
                if state.result]  # fmt: skip
    first = min(filter(None, (first_started(result.summary) for result in results)), default=None)
    now = {"test": fingerprint(declared.model_dump(mode="json", exclude_defaults=True)), "rule": TEST_RULE}
    if scale in REDUCED and not claim.is_ours and experiment.regime:
        now["regime"] = experiment.regime_fingerprint
    late = []
    for part, what in (("test", "it"), ("rule", "the rule of its test"), ("regime", "the regime of its experiment")):
        if part in now and (part not in known or known[part][0] != now[part]):
            late.append(f"{what} is in no commit")
        elif part in now and (first is None or _time(known[part]) > first):
            late.append(f"{what} is younger than its first run")
    if "test" in known and "pilots" in known and _time(known["pilots"]) < _time(known["test"]):
        late.append("pilots of the same contrast had shown its sign")
    commit = "in no commit" if "test" not in known or known["test"][0] != now["test"] else f"in {known['test'][1][:12]}"
    return commit, "; ".join(late)


def _time(known: tuple[str, str, str]) -> datetime:
    return datetime.fromisoformat(known[2])


def _statement(claim: Claim, runs: list[RunState], scale: str) -> str:
    """The statement, at a reduced scale after what was trained, which is mostly less than the paper trains."""
    if scale not in REDUCED or claim.is_ours or not claim.is_tested or not runs:
        return claim.statement
    sizes = {
        state.run.model.name: int(state.result.summary["parameters"])
        for state in runs
        if state.result and state.result.summary.get("parameters")
    }
    return f"{trained_here([state.run for state in runs], sizes)}: {claim.statement}"


def _same_trainings(claim: Claim, series: Mapping[str, ClaimSeries]) -> Verdict | None:
    """The verdict on a claim of which two series are the same trainings; None if there are none."""
    for better, than in ((series[better], series[than]) for better, than in claim.pairs):
        if better.trainings and better.trainings == than.trainings:
            which = f"all {len(better.trainings)} runs of {better.label} and {than.label} are the same trainings"
            return Verdict(UNTESTED, OUTSIDE, f"{which}: they end with the same parameters")
    return None


def _in_regime(verdict: Verdict, paper: Paper, claim: Claim, groups: Groups, scale: str) -> Verdict:
    """The verdict of the tests, or that it says nothing: the claim could not have been true of these runs."""

    def agrees(name: str) -> bool:
        control = next(one for one in paper.claims_at(scale) if one.id == name)
        return claim_row(paper, control, groups, scale).verdict == AGREES

    reason = regime.outside(paper, claim, scale, groups, agrees)
    tested = f"{ALL_THE_SAME}{verdict.word}, {verdict.reason}"
    return Verdict(UNTESTED, OUTSIDE, f"{reason}; {tested}") if reason else verdict


def _curves(tests: Iterable[CurveTest], series: Mapping[str, ClaimSeries]) -> dict[str, tuple[CurveTest, list[float]]]:
    """The bounds with the values that must lie within them, by what they are of."""
    steps = {name: curves.steps_of(one.states) for name, one in series.items()}
    by_name = {}
    for test in tests:
        than = test.than or test.series
        divided = "" if than == test.series else f" / {series[than].label} ({than})"
        at = f", n = {', '.join(map(str, test.workers))}" if test.workers else ""
        at += f" / {', '.join(map(str, test.than_workers))}" if test.than_workers else ""
        of = {"seeds": "", "means": ", means", "median": ", median"}[test.of]
        name = f"{test.quantity} of {series[test.series].label} ({test.series}){divided}{of}{at}"
        by_name[name] = test, curves.values_of(test, steps[test.series], steps[than])
    return by_name


def _obstacles(claim: Claim, test: Test, series: list[ClaimSeries], scale: str) -> Iterator[Verdict]:
    """Reasons why nothing can be compared, the most serious one first."""
    if scale not in claim.scales:
        allowed = ", ".join(claim.scales)
        yield Verdict(UNTESTED, OTHER_SCALE, f"meaningful at {allowed} scale, these runs are of {scale} scale")
    if claim.undecidable:
        yield Verdict(UNTESTED, NOT_COMPARABLE, f"cannot be decided as declared: {claim.undecidable}")
    if claim.is_exact:
        yield from (Verdict(UNTESTED, NOT_COMPARABLE, one.problem) for one in series if one.problem)
        return
    yield from _unfinished(claim, series)
    for one in series:
        if one.problem:
            yield Verdict(UNTESTED, NOT_COMPARABLE, one.problem)
        bad = [seed for seed, value in one.by_seed.items() if value != value]
        if bad:
            yield Verdict(OPEN, TOO_FEW, f"{one.label}: {claim.metric} of seed {bad[0]} is NaN")
    if other := different_hardware((state for one in series for state in one.states), claim.metric):
        yield other
    yield from _too_few(claim, test, series, scale)


def _unfinished(claim: Claim, series: list[ClaimSeries]) -> Iterator[Verdict]:
    """Of trainings that diverged, only a time cannot be compared."""
    ranked = claim.is_tested and METRICS[claim.metric].depends_on != "hardware"
    states = [(one.label, [state for state in one.states if not (ranked and state.status == "diverged")])
              for one in series]  # fmt: skip
    problems = [(label, problem) for label, left in states if left and (problem := unfinished(left))]
    problems += [(one.label, problem) for one in series if not one.states and (problem := unfinished([]))]
    problems.sort(key=lambda pair: pair[1].word != UNTESTED)
    for label, verdict in problems:
        if verdict.word == DISAGREES:
            yield Verdict(OPEN, NOT_COMPARABLE, f"{label}: {verdict.reason}: no {claim.metric} to compare")
        yield replace(verdict, reason=f"{label}: {verdict.reason}")


def _too_few(claim: Claim, test: Test, series: list[ClaimSeries], scale: str) -> Iterator[Verdict]:
    """Fewer seeds than a test needs, of each series or common ones, and others than the claim is to be tested at."""
    if claim.curves:
        return
    by_name, needed = {one.name: one for one in series}, least_seeds(scale)
    planned = next((number for at, number in claim.seeds.items() if at == scale), None)
    for better, than in ((by_name[better], by_name[than]) for better, than in claim.pairs):
        if test == "paired":
            common = len(samples(test, better, than)[0].values)
            if common < needed:
                more = f"{needed - common} more of {better.label} and {than.label}"
                yield Verdict(OPEN, TOO_FEW, f"{TESTS[test]} needs {needed} common {better.blocks}s: {more}")
            counts = {common}
        else:
            counts = {len(one.by_seed) for one in (better, than)}
            if missing := [one for one in (better, than) if len(one.by_seed) < needed]:
                more = ", ".join(f"{needed - len(one.by_seed)} more of {one.label}" for one in missing)
                yield Verdict(OPEN, TOO_FEW, f"{TESTS[test]} needs {needed} seeds of each series: {more}")
        if planned is not None and counts != {planned}:
            found = " and ".join(map(str, sorted(counts)))
            yield Verdict(OPEN, TOO_FEW, f"found {found} {better.blocks}s, to be tested once, at {planned}")


def _least_of_interest(claim: Claim, published: float | None) -> float:
    """The effect that tests must exclude for the claim to disagree: a third of the published one (Simonsohn 2015).

    Any, if that is unknown, and never more than what is claimed.
    """
    return min(claim.at_least, (published or 0.0) / 3)


def _effect(claim: Claim, test: Test, better: ClaimSeries, than: ClaimSeries, least: float) -> Effect:
    if claim.is_exact:
        sign = 1 if claim.direction == "higher" else -1
        ours, theirs = (sign * side.evidence.mean for side in (better, than))
        return Effect(better.name, than.name, rounding.difference(ours, theirs))
    compared = samples(test, better, than)
    n = compared[0].n, compared[-1].n
    if test == "ranks":
        return Effect(better.name, than.name, *effects.ranks(compared[0], compared[1], claim.at_least, least), n)
    estimate = (effects.welch if test == "welch" else effects.paired)(*compared)
    low, high = estimate.interval(2 * claim.confidence - 1)
    p_values = *estimate.p_values(claim.at_least), estimate.p_values(least)[1]
    return Effect(better.name, than.name, estimate.value, low, high, *p_values, n)


def _power(claim: Claim, test: Test, series: Mapping[str, ClaimSeries], published: float) -> float | None:
    """Probability that the claim is found to hold, with these seeds and deviations, if the published effect is true."""
    if test not in ("welch", "paired"):
        return None
    [(better, than)] = claim.pairs
    compared = samples(test, series[better], series[than])
    std, _ = effects.pooled(compared)
    if std <= effects.ROUNDING:
        return None
    seeds = compared[0].n, compared[-1].n
    return effects.power(test, published - claim.at_least, std, seeds, 1 - claim.confidence)


def _by_schedule(claim: Claim, differences: tuple[Effect, ...], labels: Mapping[str, str]) -> Verdict:
    """The verdict on numbers without spread; the smallest difference between neighbours decides."""
    step = min(differences, key=lambda effect: effect.difference)
    word = UNTESTED if step.difference >= claim.at_least - effects.ROUNDING else DISAGREES
    return Verdict(word, ARITHMETIC, f"{_step(claim, step, labels)}; {_needed(claim)}, {BEFOREHAND}")


def _by_test(claim: Claim, test: Test, differences: tuple[Effect, ...], labels: Mapping[str, str]) -> Verdict:
    """The verdict of the tests; the reason names the comparison that decides."""
    level = 1 - claim.confidence
    weakest = max(differences, key=lambda effect: (effect.p_less, -effect.difference))
    worst = min(differences, key=lambda effect: (effect.p_more, effect.difference))
    assert weakest.p_less is not None
    assert worst.p_more is not None
    assert worst.p_any is not None
    if weakest.p_less < level:
        step, word, rejected = weakest, AGREES, f"rejects a smaller effect: {p_text(weakest.p_less)}"
    elif (corrected := min(1.0, worst.p_more * len(differences))) < level:
        word = DISAGREES if worst.p_any * len(differences) < level else SMALLER
        step, rejected = worst, f"rejects the claimed effect: {p_text(corrected)}"
    elif test != "ranks" and weakest.low is None:
        step, word, rejected = weakest, OPEN, "is impossible without a spread: all seeds tie"
    else:
        step, word = weakest, OPEN
        rejected = f"rejects neither a smaller effect ({p_text(weakest.p_less)}) nor the claimed one"
    n = " and ".join(str(count) for count in dict.fromkeys(step.n or ()))
    because = TOO_FEW if word == OPEN else BY_RUNS
    return Verdict(word, because, f"{_step(claim, step, labels)}; {_needed(claim)}, {TESTS[test]} {rejected} (n = {n})")


def _step(claim: Claim, effect: Effect, labels: Mapping[str, str]) -> str:
    """The effect in words; for a claim that orders series, with the two series."""
    where = f"{labels[effect.better]} over {labels[effect.than]}: " if claim.order else ""
    difference, *bounds = effect_texts(effect.difference, effect.low, effect.high)
    interval = f" ({100 * (2 * claim.confidence - 1):g} % interval {' to '.join(bounds)})" if bounds else ""
    return f"{where}effect {difference_with_unit(difference, claim.unit)}{interval}"


def _needed(claim: Claim) -> str:
    return f"claimed: at least {claim.at_least:g}"
