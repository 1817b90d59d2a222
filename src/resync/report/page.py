"""The report of a scale: one page that works offline and shows the output of the other steps.

Pictures are linked, not embedded: the page always shows the current figures, without a new report.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resync.config import Run, Suite
from resync.config.in_words import setting_of
from resync.config.paper import Item, Paper
from resync.files import read_json, write_text
from resync.pages import fill
from resync.report.coverage import coverage, totals
from resync.results.runs import state_of

_Claims = Mapping[tuple[str, str], dict[str, Any]]
_TEMPLATE = Path(__file__).with_name("report.html.j2")


@dataclass(frozen=True)
class _Place:
    """Locations of the files, for links that stay valid as long as results and figures lie beside each other."""

    scale: str
    results: Path
    figures: Path

    def link(self, target: Path) -> str:
        """Link to a file, relative to the page's folder `results/<scale>`."""
        return Path(os.path.relpath(target, self.results / self.scale)).as_posix()


def report(suite: Suite, scale: str, results: Path, figures: Path) -> Path:
    """Write `results/<scale>/report.html`; return its path. Missing parts are named, never left out."""
    place = _Place(scale, results, figures)
    audit = _audit(place)
    claims = {(claim["paper"], claim["id"]): claim for claim in audit["claims"]} if audit else {}
    papers = [_paper(suite, paper, place, claims) for name, paper in suite.papers.items() if suite.runs(name, scale)]
    rows = coverage(suite, figures)
    page = fill(
        _TEMPLATE,
        title=f"Results at {scale} scale",
        scale=scale,
        audit=audit,
        papers=papers,
        scales=suite.scales,
        coverage=rows,
        totals=totals(rows, scale),
    )
    path = results / scale / "report.html"
    write_text(path, page)
    return path


def _paper(suite: Suite, paper: Paper, place: _Place, claims: _Claims) -> dict[str, Any]:
    items = [paper.items[name] for name in suite.items(paper.id, place.scale)]
    runs = suite.runs(paper.id, place.scale)
    shown = {run.experiment for run in runs}
    return {
        "id": paper.id,
        "title": paper.title,
        "authors": ", ".join(paper.authors),
        "venue": paper.venue,
        "arxiv": paper.arxiv,
        "experiments": [experiment for name, experiment in paper.experiments.items() if name in shown],
        "missing": paper.missing,
        "audit": place.link(place.results / place.scale / paper.id / "audit.html"),
        "items": [_item(suite, paper, item, place) | {"claims": _claims(paper, item, place, claims)} for item in items],
        "runs": [_run(run, place) for run in runs],
        "data": place.link(place.results / place.scale / paper.id / "collected.csv"),
    }


def _item(suite: Suite, paper: Paper, item: Item, place: _Place) -> dict[str, Any]:
    """A figure or table with what its runs trained and links to its files."""
    stem = place.figures / place.scale / paper.id / item.id
    runs = suite.item_runs(paper.id, item.id, place.scale) if item.series else []
    files = {suffix: stem.with_suffix(f".{suffix}") for suffix in ("pdf", "svg", "png", "csv", "md", "tex")}
    links = {suffix: place.link(file) for suffix, file in files.items() if file.exists()}
    return {
        "id": item.id,
        "title": item.title,
        "caption": item.caption,
        "setting": setting_of(runs) if runs else "",
        "files": links,
    }


def _claims(paper: Paper, item: Item, place: _Place, found: _Claims) -> list[dict[str, Any]]:
    """What the paper says of the series of an item, each beside what the runs say."""
    shown = set(paper.series_of(item.id, place.scale))
    return [
        found[paper.id, claim.id]
        for claim in paper.claims
        if (paper.id, claim.id) in found and {claim.where(series) for series in claim.series} <= shown
    ]


def _run(run: Run, place: _Place) -> dict[str, Any]:
    """Status and provenance of a run, in words."""
    state = state_of(run, place.results)
    summary = state.result.summary if state.result else {}
    launch, git = summary.get("launch") or {}, summary.get("git") or {}
    directory = place.results / run.directory
    commit = (git.get("commit") or "")[:10] + (" + changes" if git.get("dirty") else "")
    versions = summary.get("versions") or {}
    imported = f"imported, {summary['imported']['format']}" if summary.get("imported") else ""
    return {
        "name": f"{run.experiment}/{run.series}",
        "seed": run.seed,
        "status": state.status,
        "reason": state.reason,
        "hash": summary.get("config_hash", ""),
        "minutes": f"{summary['seconds']['wall'] / 60:.1f}" if summary and not imported else "",
        "ended": summary.get("ended", ""),
        "machine": imported or ", ".join(str(launch[key]) for key in ("device", "host") if launch.get(key)),
        "commit": commit,
        "torch": versions.get("torch", ""),
        "files": [
            {"name": name, "href": place.link(directory / name)}
            for name in ("summary.json", "run.yaml", "metrics.csv", "steps.csv")
            if (directory / name).exists()
        ],
    }


def _audit(place: _Place) -> dict[str, Any] | None:
    """Headline and claims of the audit; None if there is no audit yet."""
    file = place.results / place.scale / "audit.json"
    if not file.exists():
        return None
    content = read_json(file)
    try:
        return {key: content[key] for key in ("headline", "claims", "verdicts")}
    except (KeyError, TypeError) as error:
        raise ValueError(f"{file}: not an audit: {error}; `resync audit` writes it again") from None
