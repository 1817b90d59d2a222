"""Rows of the audit: a published number or a claim, with everything behind its verdict."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resync.papers.audit.effects import Effect, Number
from resync.papers.audit.verdicts import FAILURES, Tolerance, Verdict
from resync.papers.paper.paper import Paper
from resync.papers.paper.published import PublishedValue
from resync.runs.results.runs import RunState
from resync.runs.results.seed_values import SeedValues, as_published
from resync.runs.results.summary import commits

MEASURED, COMPUTED, LOGS = "measured", "computed", "published log"
OWN_REFERENCE = "reference of our own"
"""The kinds of rows: a published number that runs measure, that follows from the configuration or from published logs,
and a number that this project measured with the original's program."""
CLAIM, OWN_CLAIM, LOG_CLAIM = CLAIMS = "claim", "claim of our own", "comparison of published logs"
"""The kinds of claims: of a paper, of this project, and about logs that others published."""


def is_failure(kind: str, verdict: str) -> bool:
    """Whether a line of this kind says that something fails; what a claim of our own says is no failure."""
    return verdict in FAILURES and kind != OWN_CLAIM


@dataclass(frozen=True)
class Reference:
    """The other side of a comparison: a published value with its source and status, or a planned number.

    `id` is that of the published value; empty for any other number.
    """

    text: str
    value: float | None
    status: str
    source: str
    scale: str
    std: float | None = None
    n: int | None = None
    id: str = ""


@dataclass(frozen=True)
class Ours:
    """Our side of a comparison: the values of the finished seeds, or a number computed for a scale."""

    text: str
    scale: str
    values: tuple[Number, ...] = ()
    mean: float | None = None
    std: float | None = None
    declared: int = 0
    imported: int = 0


@dataclass(frozen=True)
class Side:
    """One series of a claim and our values of it."""

    series: str
    label: str
    ours: Ours


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the audit: what it is about, and its verdict, one of VERDICTS because of one of REASONS.

    `exploratory` says why its test cannot confirm a claim; empty if it can.
    """

    paper: str
    kind: str
    id: str
    experiment: str
    metric: str
    unit: str
    verdict: str
    because: str
    reason: str
    provenance: dict[str, Any] = field(default_factory=dict)
    headline: bool = False
    exploratory: str = ""


@dataclass(frozen=True, kw_only=True)
class ClaimRow(Row):
    """A claim: its series from best to worst, and the effects between neighbours; see `paper.claim.Claim`.

    `power`: probability that it is found to hold by these seeds if the effect is `published_effect`, that of the
    paper's own numbers. `survives`: whether its verdict stands at a false discovery rate of 5 % over the audit.
    `fixed`: in which commit what is tested was fixed, and whether before the first run.
    """

    statement: str
    direction: str
    at_least: float
    test: str
    confidence: float | None
    scale: str
    scales: tuple[str, ...]
    status: str
    source: str
    sides: tuple[Side, ...]
    effects: tuple[Effect, ...]
    at_epoch: float | None = None
    hardware: str | None = None
    published_effect: float | None = None
    power: float | None = None
    survives: bool | None = None
    fixed: str = ""


@dataclass(frozen=True, kw_only=True)
class ValueRow(Row):
    """A published number; with `than`, a number of two series.

    `reference` is the most certain source of a published quantity, `also` what other sources say of it.
    """

    item: str | None
    series: str
    label: str
    reference: Reference
    ours: Ours
    difference: float | None
    tolerance: float | None
    tolerance_basis: str | None
    than: str | None = None
    also: tuple[Reference, ...] = ()


@dataclass(frozen=True)
class Audit:
    """Rows and claims of an audit at one scale.

    `results` is the folder of the runs, `papers` has those of the audit by their ids, `damaged` the runs of each whose
    results cannot be trusted, one line each.
    """

    scale: str
    results: Path
    papers: Mapping[str, Paper]
    rows: tuple[ValueRow, ...]
    claims: tuple[ClaimRow, ...]
    damaged: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def damaged_runs(self) -> list[str]:
        return [line for lines in self.damaged.values() for line in lines]

    @property
    def lines(self) -> list[ValueRow | ClaimRow]:
        return [*self.rows, *self.claims]

    @property
    def failed(self) -> bool:
        """Whether a number or a claim of a paper disagrees, or is smaller than published, or a run is damaged."""
        return bool(self.damaged_runs) or any(is_failure(line.kind, line.verdict) for line in self.lines)


def verdict_fields(verdict: Verdict, tolerance: Tolerance | None = None) -> dict[str, Any]:
    """The fields of a row that follow from a verdict."""
    return {
        "verdict": verdict.word,
        "because": verdict.because,
        "reason": verdict.reason,
        "tolerance": tolerance.value if tolerance else None,
        "tolerance_basis": tolerance.basis if tolerance else None,
    }


_SIGNS = {None: "", "lower": "> ", "upper": "< "}


def reference_of(published: PublishedValue) -> Reference:
    """A published value as the reference of a row; that of an unknown value reads `not known`."""
    value, std, n = published.value, published.std, published.n
    text = "not known" if value is None else _SIGNS[published.bound] + as_published(value, std, n)
    return Reference(text, value, published.status, published.source, published.scale, std, n, published.id)


def ours_of(evidence: SeedValues, scale: str, states: Sequence[RunState], decimals: int | None = None) -> Ours:
    """The evidence of the finished seeds among `states`, which hold all declared seeds."""
    text = evidence.text(decimals) or "none"
    imported = sum(state.result is not None and state.result.imported is not None for state in states)
    return Ours(text, scale, evidence.values, evidence.mean, evidence.std, len(states), imported)


def provenance(states: Iterable[RunState]) -> dict[str, Any]:
    """Provenance of the runs' results: folders, commits, machines, versions."""
    results = [(state, state.result) for state in states if state.result]
    summaries = [result.summary for _, result in results]
    gits = [git for summary in summaries for git in commits(summary)]
    launches = [summary.get("launch") or {} for summary in summaries]
    return {
        "runs": [
            {"directory": str(state.run.directory), "seed": state.run.seed, "status": state.status}
            for state, _ in results
        ],
        "config_hashes": _distinct(summary["config_hash"] for summary in summaries),
        "commits": _distinct(git.get("commit") for git in gits),
        "dirty": any(git.get("dirty") for git in gits),
        "devices": _distinct(launch.get("device") for launch in launches),
        "hosts": _distinct(launch.get("host") for launch in launches),
        "versions": {
            name: _distinct((summary.get("versions") or {}).get(name) for summary in summaries)
            for name in _distinct(name for summary in summaries for name in summary.get("versions") or {})
        },
        "imported": [summary["imported"] for summary in summaries if summary.get("imported")],
        "ended": max((summary.get("ended") or "" for summary in summaries), default=""),
    }


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(value for value in values if value is not None))
