"""What a site shows: the states of a scale's runs, the audit's lines, and which of them belong together."""

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from resync.base.errors import UserError
from resync.base.files import read_json
from resync.base.settings.tree import leaves
from resync.papers.audit.in_words import said
from resync.papers.audit.rows import CLAIMS
from resync.papers.paper import Suite
from resync.papers.paper.paper import Paper
from resync.papers.plan.modelled import ModelledTime
from resync.papers.render.item import time_of
from resync.runs.results.runs import RunState, state_of
from resync.runs.run import Run

ARCHIVE = "reference"
"""The folder of the repository's own results, beside those of the scales."""
_JOINED = ("headline", "damaged", "lines")
"""What audits of several papers have one after the other."""
SeriesName = tuple[str, str, str]
"""Paper, experiment and series."""
Line = dict[str, Any]
"""A row or a claim of `audit.json`, with its `anchor`, and of a claim what it `said` apart from what was trained."""


def read_audit(file: Path) -> dict[str, Any]:
    """The content of `audit.json`, with its claims and rows as `lines`; empty if there is no audit yet.

    Raises ValueError for a file of another version.
    """
    if not file.exists():
        return {}
    audit = read_json(file)
    try:
        rows = [row | {"anchor": f"{row['paper']}-{row['id']}"} for row in audit["rows"]]
        claims = [
            claim | {"anchor": f"{claim['paper']}-claim-{claim['id']}", "said": said(claim)}
            for claim in audit["claims"]
        ]
        known = {name: audit[name] for name in ("headline", "score", "verdicts", "reasons", "signs", "failures")}
        damaged = [line for lines in audit["damaged"].values() for line in lines]
        return known | {"damaged": damaged, "lines": [*claims, *rows]}
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"{file}: not an audit: {error}; `resync audit` writes it again") from None


@dataclass(frozen=True)
class Content:
    """The results of a scale, read once for all pages."""

    suite: Suite
    scale: str
    results: Path
    figures: Path

    @cached_property
    def papers(self) -> list[Paper]:
        return [paper for name, paper in self.suite.papers.items() if self.suite.runs(name, self.scale)]

    @cached_property
    def runs(self) -> list[Run]:
        return [run for paper in self.papers for run in self.suite.runs(paper.id, self.scale)]

    @cached_property
    def states(self) -> dict[str, RunState]:
        return {run.id: state_of(run, self.results) for run in self.runs}

    @cached_property
    def settings(self) -> dict[str, dict[str, str]]:
        return {run.id: settings_of(run) for run in self.runs}

    @cached_property
    def items(self) -> dict[str, list[str]]:
        return {paper: self.suite.items(paper, self.scale) for paper in self.suite.papers}

    @cached_property
    def series(self) -> dict[SeriesName, list[RunState]]:
        groups = groupby(self.runs, key=lambda run: (run.paper, run.experiment, run.series))
        return {name: [self.states[run.id] for run in group] for name, group in groups}

    @cached_property
    def audit(self) -> dict[str, Any]:
        """That of all papers, and those of papers that it does not have yet."""
        folder = self.results / self.scale
        audit = read_audit(folder / "audit.json")
        known = {line["paper"] for line in audit.get("lines", [])}
        for paper in self.papers:
            own = read_audit(folder / paper.id / "audit.json") if paper.id not in known else {}
            audit = own | audit | {name: [*audit.get(name, []), *own[name]] for name in _JOINED if own}
        return audit

    @cached_property
    def archive(self) -> dict[str, Any]:
        """The audit of the archive's results on real data; empty without an archive."""
        return read_audit(self.results / ARCHIVE / "mini" / "audit.json")

    @cached_property
    def times(self) -> dict[SeriesName, ModelledTime | None]:
        return {name: time_of(self.suite, states) for name, states in self.series.items()}

    @cached_property
    def lines(self) -> list[Line]:
        return self.audit.get("lines", [])

    def lines_of(self, paper: str) -> list[Line]:
        return [line for line in self.lines if line["paper"] == paper]

    @cached_property
    def lines_of_series(self) -> dict[SeriesName, list[Line]]:
        by_series: dict[SeriesName, list[Line]] = defaultdict(list)
        for line in self.lines:
            for name in series_of_line(line):
                by_series[name].append(line)
        return by_series

    @cached_property
    def items_of_series(self) -> dict[SeriesName, list[str]]:
        by_series: dict[SeriesName, list[str]] = defaultdict(list)
        for paper in self.papers:
            for item in self.items[paper.id]:
                for experiment, series in paper.series_of(item, self.scale):
                    by_series[paper.id, experiment, series].append(item)
        return by_series

    def items_of_line(self, line: Line) -> list[str]:
        """The figure or table with a line's number, or of a claim the first with its series, and with its metric."""
        paper, items = self.suite.papers[line["paper"]], self.items[line["paper"]]
        if line["kind"] not in CLAIMS:
            return [line["item"]] if line["item"] in items else []
        shown = [set(self.items_of_series[name]) for name in series_of_line(line)]
        fitting = [item for item in items if all(item in of_series for of_series in shown)]
        fitting.sort(key=lambda item: line["metric"] not in paper.item_at(item, self.scale).options.shown_metrics)
        declared = next((claim.item for claim in paper.claims if claim.id == line["id"]), None)
        return [declared] if declared in items else fitting[:1]


def series_of_line(line: Line) -> list[SeriesName]:
    """The series that a line of the audit is about."""
    if line["kind"] in CLAIMS:
        names = [side["series"] for side in line["sides"]]
    else:
        names = [name for name in (line["series"], line.get("than")) if name]
    pairs = (name.rpartition("/") for name in names)
    return list(dict.fromkeys((line["paper"], where or line["experiment"], name) for where, _, name in pairs))


def settings_of(run: Run) -> dict[str, str]:
    """The settings of a run that may differ between series, by dotted names."""
    names = {"paper", "experiment", "series", "scale", "seed", "start_hash"}
    plain = run.model_dump(mode="json", exclude_none=True, exclude=names)
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in leaves(plain)}


def page_of(run: Run) -> str:
    """The page of a run within the site."""
    return f"{run.id}/index.html"
