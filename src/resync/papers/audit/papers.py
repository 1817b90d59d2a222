"""The audit: published values and claims beside the results on disk."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from resync.papers.audit import logs, verdicts
from resync.papers.audit.claims import claim_row
from resync.papers.audit.rows import (
    COMPUTED,
    MEASURED,
    OWN_REFERENCE,
    Audit,
    ClaimRow,
    Ours,
    ValueRow,
    ours_of,
    provenance,
    reference_of,
    verdict_fields,
)
from resync.papers.audit.sides import Groups
from resync.papers.audit.surviving import surviving
from resync.papers.audit.values import (
    BEFOREHAND,
    different_hardware,
    known_beforehand,
    measured,
    of_imported,
    unfinished,
)
from resync.papers.audit.verdicts import (
    AGREES,
    BETTER,
    DISAGREES,
    NOT_COMPARABLE,
    NOT_RUN,
    OPEN,
    OTHER_SCALE,
    SOURCE,
    UNTESTED,
    Target,
    Verdict,
)
from resync.papers.paper import Suite
from resync.papers.paper.claim import LEAST_SEEDS
from resync.papers.paper.paper import Paper
from resync.papers.paper.published import PublishedValue, quantities, reference_time
from resync.runs.metrics.registry import EXACT, METRICS
from resync.runs.results.runs import RunState, state_of
from resync.runs.results.seed_values import SeedValues, number
from resync.runs.run import Run
from resync.workers.formulas.rounding import difference


def audit(suite: Suite, scale: str, results: Path, papers: Iterable[str] | None = None) -> Audit:
    """Audit the results of `papers`, by default of all papers, at a scale.

    A damaged run is named and counts as one without results: an audit covers all results and does not stop.
    """
    rows: list[ValueRow] = []
    claims: list[ClaimRow] = []
    damaged: dict[str, tuple[str, ...]] = {}
    names = list(suite.papers if papers is None else papers)
    for paper in names:
        declared = suite.papers[paper]
        states = [state_of(run, results) for run in suite.runs(paper, scale)]
        bad = [state for state in states if state.status == "damaged"]
        damaged[paper] = tuple(f"{state.run.id} ({scale}): damaged: {state.reason}" for state in bad)
        by_series = groupby(states, lambda state: (state.run.experiment, state.run.series))
        groups = {key: list(group) for key, group in by_series}
        beside = {value.id: value for value in declared.published_beside(scale)}
        # Records are many, and nothing at another scale compares with one.
        here = [value for value in declared.published if value.seed is None or value.scale == scale]
        sources = [[beside[value.id] for value in same] for same in quantities(here)]
        rows += [_published_row(suite, declared, same, groups, scale) for same in sources]
        claims += [claim_row(declared, claim, groups, scale) for claim in declared.claims_at(scale)]
        if scale == logs.SCALE:
            rows += [logs.log_row(declared, group, results) for group in declared.logs.groups]
            claims += [logs.comparison_row(declared, each, results) for each in declared.logs.comparisons]
    audited = {name: suite.papers[name] for name in names}
    return Audit(scale, results, audited, tuple(rows), surviving(claims), damaged)


def _published_row(suite: Suite, paper: Paper, same: list[PublishedValue], groups: Groups, scale: str) -> ValueRow:
    value, *others = same
    names: dict[str, Any] = {
        "paper": paper.id, "id": value.id, "item": value.item, "experiment": value.experiment or "",
        "series": value.series or "", "label": _label(paper, value), "metric": value.metric, "unit": value.unit,
        "reference": reference_of(value), "also": tuple(map(reference_of, others)), "headline": value.headline,
    }  # fmt: skip
    if value.of:
        verdict = Verdict(UNTESTED, NOT_RUN, "no run of this training is declared here")
        ours = Ours("none", value.scale)
        return ValueRow(**names, kind=MEASURED, ours=ours, difference=None, **verdict_fields(verdict))
    if value.metric in EXACT:
        return _planned_row(suite.runs(paper.id, value.scale, value.experiment, value.series), value, names)
    return _measured_row(paper, value, names, groups, scale)


def _label(paper: Paper, value: PublishedValue) -> str:
    """What a value is of, in words."""
    if value.experiment is None or value.series is None:
        return value.of or ""
    labels = paper.experiments[value.experiment].labels
    label = labels[value.series]
    if value.than:
        label = f"{label}, {'divided by' if value.is_ratio else 'minus'} {labels[value.than]}"
    if value.at_workers:
        label = f"{label}, {value.at_workers} workers, seed {value.seed}"
    if value.at_epoch is not None:
        label = f"{label}, epoch {value.at_epoch:g}"
    return label


def _measured_row(paper: Paper, value: PublishedValue, names: dict[str, Any], groups: Groups, scale: str) -> ValueRow:
    """A value measured in training: it is compared only at its own scale, and only if all seeds have finished."""
    experiment, series = names["experiment"], names["series"]
    states = groups.get((experiment, series), [])
    if value.seed is not None:
        states = [state for state in states if state.run.seed == value.seed]
    beside = groups.get((experiment, value.series_beside), []) if value.series_beside else None
    sides = [states] if beside is None else [states, beside]
    found = [measured(side, value.metric, value.at_epoch, value.at_workers) for side in sides]
    trained = any(state.run.total_steps for side in sides for state in side)
    reference = reference_time(value, paper.published)
    target = Target.of(value, reference, LEAST_SEEDS if trained else 1)
    if target and value.alternative:
        other = measured(groups.get((experiment, value.alternative), []), value.metric, value.at_epoch)[0].mean
        target = replace(target, alternative=other)
    evidence = [one for one, _ in found]
    states = [state for side in sides for state in side]
    verdict = next(_obstacles(value, sides, [problem for _, problem in found], scale), None)
    if verdict is None:
        assert target is not None
        if value.seed is None:
            verdict = verdicts.compare(target, *evidence)
        else:
            verdict = _of_record(value, evidence[0].mean, states, target)
        if METRICS[value.metric].depends_on == "hardware" and (verdict.word == DISAGREES or verdict.because == BETTER):
            # Times on another machine than the published one may have another ratio, which is no failure.
            reason = f"{verdict.reason}; another machine or network than the paper's may explain it"
            verdict = Verdict(OPEN, NOT_COMPARABLE, reason)
        verdict = of_imported(verdict, states)
    shown = target if value.scale == scale and not value.is_bare_time else None
    return ValueRow(
        **names,
        kind=OWN_REFERENCE if value.status == "measured" else MEASURED,
        ours=_ours(value, target, evidence, sides, scale),
        # Times differ between machines; the reason gives the ratio.
        difference=_difference(shown.ours(*evidence), shown.value) if shown and not value.relative_to else None,
        **verdict_fields(verdict, shown.shown_tolerance if shown else None),
        than=value.than,
        provenance=provenance(states),
    )


def _of_record(value: PublishedValue, ours: float, states: list[RunState], target: verdicts.Target) -> Verdict:
    """The verdict on a number of one search, or of one training with its rate."""

    def beside(metric: str) -> float:
        return measured(states, metric, workers=value.at_workers)[0].mean

    if value.metric == "noisy_error":
        return verdicts.draw_of_record(
            (beside("noisy_error_min"), beside("noisy_error_max")), beside("final_error"), target
        )
    verdict = verdicts.record(ours, target)
    if value.rate is not None and verdict.word == AGREES:
        return verdicts.record_with_rate(verdict, beside("tuned_lr"), value.rate, target)
    return verdict


def _obstacles(
    value: PublishedValue, sides: list[list[RunState]], problems: list[str], scale: str
) -> Iterator[Verdict]:
    """Reasons why a value is not compared, the most serious one first."""
    if value.undecidable:
        yield Verdict(UNTESTED, NOT_COMPARABLE, f"cannot be decided as declared: {value.undecidable}")
    if value.value is None:
        yield Verdict(UNTESTED, SOURCE, f"no published value is known: {value.source}")
    if value.scale != scale:
        yield Verdict(UNTESTED, OTHER_SCALE, f"published at {value.scale} scale, these runs are of {scale} scale")
    if value.is_bare_time:
        yield Verdict(UNTESTED, NOT_COMPARABLE, "time depends on the hardware; compare ratios on one machine")
    for side, problem in zip(sides, problems, strict=True):
        if problem:
            yield Verdict(UNTESTED, NOT_COMPARABLE, problem)
        yield from filter(None, [unfinished(side)])
    for side in sides:
        if other := _other_images(side):
            yield Verdict(UNTESTED, NOT_COMPARABLE, other)
    if hardware := different_hardware((state for side in sides for state in side), value.metric):
        yield hardware
    if value.status == "unverified":
        yield Verdict(UNTESTED, SOURCE, f"the published value itself is uncertain: {value.source}")


def _ours(
    value: PublishedValue,
    target: Target | None,
    evidence: list[SeedValues],
    sides: list[list[RunState]],
    scale: str,
) -> Ours:
    """Our side of the row: the seeds of the series, or the number that follows from those of two."""
    if value.than is None or target is None:
        return ours_of(evidence[0], scale, sides[0])
    mean = target.ours(*evidence)
    counts = " and ".join(str(one.n) for one in evidence)
    text = f"{number(mean)} (n={counts})" if math.isfinite(mean) else "none"
    return Ours(text, scale, mean=mean, declared=min(map(len, sides)))


def _other_images(states: list[RunState]) -> str:
    """The variant of the images that a series was trained on, if it is not the published one; empty if it is."""
    for state in states:
        trained_on = (state.result.summary.get("data") or {}).get("variant") if state.result else None
        published = state.run.data.component.published_variant
        if trained_on and published and trained_on != published:
            return f"trained on {trained_on}, published on {published}"
    return ""


def _planned_row(runs: Sequence[Run], value: PublishedValue, names: dict[str, Any]) -> ValueRow:
    """A value that follows from the configuration: computed for the published scale, regardless of what was run."""
    evidence, problem = known_beforehand(runs, value.metric, value.at_epoch)
    target = Target(value.value or 0.0, declared=value.tolerance, reason=value.tolerance_reason or "")
    tolerance = verdicts.planned_tolerance(target)
    if not runs:
        verdict = Verdict(UNTESTED, NOT_COMPARABLE, f"the series is not declared at {value.scale} scale")
    elif problem:
        verdict = Verdict(UNTESTED, NOT_COMPARABLE, problem)
    elif value.value is None:
        verdict = Verdict(UNTESTED, SOURCE, f"no published value is known: {value.source}")
    else:
        verdict = verdicts.planned(evidence.mean, target)
        if value.status == "unverified":
            verdict = Verdict(UNTESTED, SOURCE, f"{verdict.reason}; uncertain: {value.source}")
    text = f"{number(evidence.mean, 3)} ({BEFOREHAND})" if evidence.n else "none"
    return ValueRow(
        **names,
        kind=COMPUTED,
        ours=Ours(text, value.scale, mean=evidence.mean if evidence.n else None),
        difference=_difference(evidence.mean, value.value),
        **verdict_fields(verdict, tolerance if value.value is not None else None),
        provenance={"schedule": [run.hash for run in runs[:1]]},
    )


def _difference(ours: float, published: float | None) -> float | None:
    return None if published is None or not math.isfinite(ours) else difference(ours, published)
