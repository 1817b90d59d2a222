"""Published logs: their means computed again, and what tests say of statements about them."""

import math
from pathlib import Path

from resync.papers.audit import effects, verdicts
from resync.papers.audit.effects import Effect, p_text
from resync.papers.audit.rows import LOG_CLAIM, LOGS, ClaimRow, Ours, Reference, Side, ValueRow, verdict_fields
from resync.papers.audit.verdicts import (
    AGREES,
    CONFIDENCE,
    DISAGREES,
    LOGS_OF_OTHERS,
    NOT_RUN,
    OPEN,
    SOURCE,
    TOO_FEW,
    UNTESTED,
    Target,
    Tolerance,
    Verdict,
)
from resync.papers.importer.published_logs import values_of
from resync.papers.paper.logs import LogComparison, LogGroup
from resync.papers.paper.paper import Paper
from resync.runs.results.errors import ResultsError
from resync.runs.results.seed_values import SeedValues, as_published, decimals_of, number, signed
from resync.workers.formulas import rounding

SCALE = "paper"
"""The scale of what others published; audits of others leave their logs out."""


def log_row(paper: Paper, group: LogGroup, results: Path) -> ValueRow:
    """The row of a group: a published mean is verified if it follows from its logs, to its last printed decimal."""
    tolerance = verdicts.planned_tolerance(Target(group.mean))
    evidence, verdict = _recomputed(paper, group, results, tolerance)
    known = evidence.n > 0
    return ValueRow(
        paper=paper.id, kind=LOGS, id=group.id, item=None, experiment=group.table, series=group.id, label=group.label,
        metric=group.metric, unit=group.unit,
        reference=Reference(
            as_published(group.mean, group.std, group.n), group.mean,
            "verified" if verdict.word == AGREES else "unverified", group.source, SCALE, group.std, group.n,
        ),
        ours=_ours(evidence, group),
        difference=rounding.difference(evidence.mean, group.mean) if known else None,
        **verdict_fields(verdict, tolerance),
    )  # fmt: skip


def _recomputed(paper: Paper, group: LogGroup, results: Path, tolerance: Tolerance) -> tuple[SeedValues, Verdict]:
    try:
        evidence = values_of(results, paper.id, paper.logs, group)
    except ResultsError as error:
        return SeedValues(()), Verdict(UNTESTED, NOT_RUN, str(error))
    differing = []
    if evidence.n != group.n:
        differing.append(f"{evidence.n} runs, published {group.n}")
    if not _agrees(evidence.mean, group.mean, tolerance.value):
        differing.append(f"mean {number(evidence.mean, decimals_of(group.mean) + 1)}, published {group.mean:g}")
    if group.std is not None and not _agrees(evidence.std, group.std, 0.5 * 10.0 ** -decimals_of(group.std)):
        differing.append(f"deviation {number(evidence.std, decimals_of(group.std) + 1)}, published {group.std:g}")
    if differing:
        return evidence, Verdict(UNTESTED, SOURCE, f"the logs give {', '.join(differing)}")
    return evidence, Verdict(AGREES, LOGS_OF_OTHERS, f"computed again from the logs of {evidence.n} runs")


def _agrees(ours: float, published: float, tolerance: float) -> bool:
    # A decimal fraction is not exact in binary: 0.25 must be within half a unit of 0.2.
    difference = abs(ours - published)
    return difference <= tolerance or math.isclose(difference, tolerance, rel_tol=1e-6)


def comparison_row(paper: Paper, comparison: LogComparison, results: Path) -> ClaimRow:
    """The row of a comparison, with Welch's test over the runs, and the benchmark's own rule if it has one."""
    groups = {group.id: group for group in paper.logs.groups}
    better, than = groups[comparison.better], groups[comparison.than]
    differences: tuple[Effect, ...] = ()
    sides = {better: SeedValues(()), than: SeedValues(())}
    try:
        sides = {group: values_of(results, paper.id, paper.logs, group) for group in sides}
        effect, verdict = _tested(comparison, better, than, sides[better], sides[than])
        differences = (effect,)
    except ResultsError as error:
        verdict = Verdict(UNTESTED, NOT_RUN, str(error))
    return ClaimRow(
        paper=paper.id, kind=LOG_CLAIM, id=comparison.id, statement=comparison.statement, experiment=better.table,
        metric=better.metric, unit=better.unit, direction="lower", at_least=0.0, test="welch", confidence=CONFIDENCE,
        scale=SCALE, scales=(SCALE,), status="verified", source=comparison.source,
        sides=tuple(Side(group.id, group.label, _ours(evidence, group)) for group, evidence in sides.items()),
        effects=differences, verdict=verdict.word, because=verdict.because, reason=verdict.reason,
    )  # fmt: skip


def _tested(
    comparison: LogComparison, better: LogGroup, than: LogGroup, ours: SeedValues, theirs: SeedValues
) -> tuple[Effect, Verdict]:
    """The effect, steps saved included, and the verdict: it agrees if test and rule agree that there is one."""
    rule = comparison.rule
    saved = rule.slope * (_step(than) - _step(better)) if rule else 0.0
    lower, higher = (SeedValues.of(-value for value in sample.values) for sample in (ours, theirs))
    if min(ours.n, theirs.n) < 2:
        effect = Effect(better.id, than.id, lower.mean - higher.mean + saved)
        return effect, Verdict(OPEN, TOO_FEW, f"effect {signed(effect.difference, 3)} {better.unit} of single runs")
    estimate = effects.welch(lower, higher)
    p_less, p_more = estimate.p_values(-saved)
    difference = estimate.value + saved
    low, high = (None if bound is None else bound + saved for bound in estimate.interval(2 * CONFIDENCE - 1))
    effect = Effect(better.id, than.id, difference, low, high, p_less, p_more, p_more, (ours.n, theirs.n))
    level = 1 - CONFIDENCE
    word = AGREES if p_less < level else DISAGREES if p_more < level else OPEN
    priced = f" with {signed(saved, 5)} for the steps saved" if rule else ""
    reason = f"effect {signed(difference, 5)} {better.unit}{priced}; Welch's test: {p_text(p_less)}"
    if rule:
        reached = difference / math.sqrt(1 / ours.n + 1 / theirs.n)
        met = reached >= rule.least
        word = word if met or word != AGREES else OPEN
        reason += f"; the benchmark's rule gives {number(reached, 5)}, allowed: at least {rule.least:g}"
    because = TOO_FEW if word == OPEN else LOGS_OF_OTHERS
    return effect, Verdict(word, because, f"{reason} (n = {ours.n} and {theirs.n})")


def _step(group: LogGroup) -> int:
    assert group.step is not None
    return group.step


def _ours(evidence: SeedValues, group: LogGroup) -> Ours:
    text = evidence.text(max(4, decimals_of(group.mean) + 1)) or "none"
    return Ours(text, SCALE, evidence.values, evidence.mean, evidence.std, evidence.n, evidence.n)
