"""The audit: published values and claims beside what the results on disk say, and whether runs did as planned."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from resync.audit import page, verdicts
from resync.audit.claims import claim_row
from resync.audit.rows import (
    PUBLISHED,
    ROUNDS,
    ClaimRow,
    Ours,
    Reference,
    Row,
    ours_of,
    provenance,
    reference_of,
    sentence,
    verdict_fields,
)
from resync.audit.values import BEFOREHAND, HARDWARE_BOUND, known_beforehand, measured, unfinished
from resync.audit.verdicts import FAILURES, Target, Verdict
from resync.config import Run, Suite
from resync.config.paper import PublishedValue
from resync.files import write_text
from resync.plan import volume
from resync.results.collect import CollectError, RunState, state_of
from resync.results.evidence import Evidence, number


@dataclass(frozen=True)
class Metric:
    """How a published metric is compared; `better` is 1 where more is better, -1 where less is."""

    better: int
    default: float | None = None


METRICS = {
    "val_top1": Metric(better=1, default=0.3),  # in points; seeds on ImageNet spread by 0.03 to 0.12
    "val_loss": Metric(better=-1),
    "best_val_top1": Metric(better=1, default=0.3),
    "best_train_loss": Metric(better=-1),
    "best_val_loss": Metric(better=-1),
    "test_bleu": Metric(better=1),
    "best_test_bleu": Metric(better=1),
    "hours": Metric(better=-1),
    "communication_hours": Metric(better=-1),
    "seconds_per_step": Metric(better=-1),
}
"""Metrics that only a training can measure; the others follow from the configuration."""


@dataclass(frozen=True)
class Audit:
    """The rows and claims of an audit at one scale; `results` is where the runs lie, `papers` are titles by id."""

    scale: str
    results: Path
    papers: dict[str, str]
    rows: tuple[Row, ...]
    claims: tuple[ClaimRow, ...]

    @property
    def lines(self) -> list[Row | ClaimRow]:
        """Rows and claims."""
        return [*self.rows, *self.claims]

    @property
    def failed(self) -> bool:
        """Whether anything is `not reproduced` or `diverged`, or a claim `fails`."""
        return any(row.verdict in FAILURES for row in self.lines)

    @property
    def sentence(self) -> str:
        """The whole audit in a few sentences."""
        return sentence(self.rows, self.claims)

    def of(self, paper: str) -> "Audit":
        """The part of one paper."""
        rows = tuple(row for row in self.rows if row.paper == paper)
        claims = tuple(claim for claim in self.claims if claim.paper == paper)
        return Audit(self.scale, self.results, {paper: self.papers[paper]}, rows, claims)

    def write(self, directory: Path) -> list[Path]:
        """Write `audit.json`, `.md` and `.html` into `directory`; return the paths.

        Of several papers each one's part is written to a folder of its own too, unless it is there already: to a
        workflow a file that is written again is another one.
        """
        files = {directory / f"audit.{suffix}": writer(self, directory) for suffix, writer in page.WRITERS.items()}
        for file, text in files.items():
            write_text(file, text)
        for paper in self.papers if len(self.papers) > 1 else ():
            self.of(paper)._write_where_changed(directory / paper)
        return list(files)

    def _write_where_changed(self, directory: Path) -> None:
        for suffix, writer in page.WRITERS.items():
            file, text = directory / f"audit.{suffix}", writer(self, directory)
            if not file.exists() or file.read_text(encoding="utf-8") != text:
                write_text(file, text)


def audit(suite: Suite, scale: str, results: Path, papers: Iterable[str] | None = None) -> Audit:
    """Audit the results of `papers`, all by default, at a scale.

    Damaged results are `not run`, with the damage as the reason: an audit reports what is there and does not
    stop.
    """
    rows: list[Row] = []
    claims: list[ClaimRow] = []
    names = list(suite.papers if papers is None else papers)
    for paper in names:
        states = [_state(run, results) for run in suite.runs(paper, scale)]
        groups = {key: list(group) for key, group in groupby(states, _series_of)}
        for value in suite.papers[paper].published:
            series = groups.get((value.experiment, value.series), [])
            if value.metric in METRICS:
                rows.append(_measured_row(suite, paper, value, series, scale))
            else:
                rows.append(_planned_row(suite, paper, value))
        # A run that may stop early has no planned number of rounds.
        rows += [_rounds_row(group) for group in groups.values() if not group[0].run.early_stopping]
        declared = suite.papers[paper]
        claims += [claim_row(declared, claim, groups, scale) for claim in declared.claims]
    return Audit(scale, results, {name: suite.papers[name].title for name in names}, tuple(rows), tuple(claims))


def _measured_row(suite: Suite, paper: str, value: PublishedValue, states: list[RunState], scale: str) -> Row:
    """A value that training measures: compared at its own scale only, and only between finished seeds."""
    metric = METRICS[value.metric]
    evidence, problem = _evidence(states, value.metric)
    target = _target(value, metric)
    hardware_bound = value.metric in HARDWARE_BOUND
    comparable = value.scale == scale and not hardware_bound
    if value.value is None:
        verdict = Verdict("unverified source", "no published value is known: to be filled")
    elif value.scale != scale:
        verdict = Verdict("not comparable", f"published at {value.scale} scale, these runs are of {scale} scale")
    elif hardware_bound:
        verdict = Verdict("not comparable", "time depends on the hardware; compare ratios on one machine")
    elif incomplete := problem or _verdict_of_states(states):
        verdict = incomplete
    elif other := _other_images(states):
        verdict = Verdict("not comparable", other)
    elif value.status == "unverified":
        verdict = Verdict("unverified source", f"the value itself is not certain: {value.source}")
    else:
        verdict = verdicts.compare(evidence, target)
    return Row(
        **_names(suite, paper, value),
        ours=ours_of(evidence, scale, states),
        difference=_difference(evidence.mean, value.value) if comparable else None,
        **verdict_fields(verdict, target.tolerance if comparable else None),
        provenance=provenance(states),
    )


def _other_images(states: list[RunState]) -> str:
    """What a series was trained on if it is another copy of the images than the published one, such as a lossy one."""
    for state in states:
        trained_on = (state.result.summary.get("data") or {}).get("variant") if state.result else None
        published = state.run.data.component.published_variant
        if trained_on and published and trained_on != published:
            return f"trained on {trained_on}, published on {published}"
    return ""


def _planned_row(suite: Suite, paper: str, value: PublishedValue) -> Row:
    """A value that follows from the configuration: computed for the published scale, whatever was run."""
    runs = suite.runs(paper, value.scale, value.experiment, value.series)
    evidence, problem = known_beforehand(runs, value.metric)
    target = Target(value.value or 0.0, declared=value.tolerance)
    tolerance = verdicts.planned_tolerance(target)
    if not runs:
        verdict = Verdict("not comparable", f"the series is not declared at {value.scale} scale")
    elif problem:
        verdict = Verdict("not comparable", problem)
    elif value.value is None:
        verdict = Verdict("unverified source", "no published value is known: to be filled")
    else:
        verdict = verdicts.planned(evidence.mean, target)
        if value.status == "unverified":
            verdict = Verdict("unverified source", f"{verdict.reason}; not certain: {value.source}")
    text = f"{number(evidence.mean, 3)} ({BEFOREHAND})" if evidence.n else "none"
    return Row(
        **_names(suite, paper, value),
        ours=Ours(text, value.scale, mean=evidence.mean if evidence.n else None),
        difference=_difference(evidence.mean, value.value),
        **verdict_fields(verdict, tolerance if value.value is not None else None),
        provenance={"schedule": [run.hash for run in runs[:1]]},
    )


def _rounds_row(states: list[RunState]) -> Row:
    """Whether the finished runs of a series did as many rounds as planned at their own scale."""
    run = states[0].run
    expected = volume(run).rounds
    evidence, problem = _evidence(states, "rounds")
    known = [value for value in evidence.values if not math.isnan(value)]
    wrong = [value for value in known if value != expected]
    verdict = problem or _verdict_of_states(states)
    if wrong:
        reason = f"{len(wrong)} of {evidence.n} runs did {wrong[0]:g} rounds, planned are {expected}"
        verdict = Verdict("not reproduced", reason)
    elif verdict is None and len(known) < evidence.n:
        reason = f"{evidence.n - len(known)} of {evidence.n} runs are imported logs that count no rounds"
        verdict = Verdict("inconclusive", reason)
    return Row(
        paper=run.paper, kind=ROUNDS, id=f"{run.experiment}_{run.series}_rounds", item=None,
        experiment=run.experiment, series=run.series, label=run.label, metric="rounds", unit="rounds",
        reference=Reference(f"{expected:,}", expected, "planned", "schedule and period rule", run.scale),
        ours=ours_of(evidence, run.scale, states, decimals=0),
        difference=_difference(evidence.mean, expected),
        **verdict_fields(verdict or Verdict("reproduced", "every run did the planned rounds")),
        provenance=provenance(states),
    )  # fmt: skip


def _state(run: Run, results: Path) -> RunState:
    try:
        return state_of(run, results)
    except CollectError as error:
        return RunState(run, "not run", str(error), None)


def _series_of(state: RunState) -> tuple[str, str]:
    return state.run.experiment, state.run.series


def _verdict_of_states(states: list[RunState]) -> Verdict | None:
    """The verdict that needs no comparison; None if every declared seed has finished."""
    found = unfinished(states)
    return Verdict(*found) if found else None


def _evidence(states: list[RunState], metric: str) -> tuple[Evidence, Verdict | None]:
    """The finished seeds' values; with a verdict instead if they do not have the metric."""
    evidence, problem = measured(states, metric)
    return evidence, Verdict("not run", problem) if problem else None


def _target(value: PublishedValue, metric: Metric) -> Target:
    published = math.nan if value.value is None else value.value
    return Target(published, value.std, value.n, metric.better, value.tolerance, metric.default)


def _difference(ours: float, published: float | None) -> float | None:
    return None if published is None or not math.isfinite(ours) else ours - published


def _names(suite: Suite, paper: str, value: PublishedValue) -> dict[str, Any]:
    labels = suite.papers[paper].experiments[value.experiment].labels
    return {
        "paper": paper, "kind": PUBLISHED, "id": value.id, "item": value.item, "experiment": value.experiment,
        "series": value.series, "label": labels[value.series], "metric": value.metric, "unit": value.unit,
        "reference": reference_of(value),
    }  # fmt: skip
