"""Verbs that say what is declared, and what has come out of it: here, or in the repository's own results."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from resync.base.errors import UserError
from resync.base.files import read_json
from resync.base.settings.errors import suggestion
from resync.base.text_tables import aligned, json_text
from resync.papers.paper import Suite
from resync.papers.paper.claim import Claim
from resync.papers.paper.paper import Paper
from resync.runs.metrics.registry import METRICS
from resync.runs.run import Run
from resync.runs.run.run import SCALES
from resync.tools.cli.declare import ANY_PAPER, CONFIGS, JSON, PILOTS, SCALE, flag, runs_of, suite_of, verb

REFERENCE = Path("results/reference")
"""The repository's own archive."""


@verb(
    "list the papers, or what a paper has; checks every configuration file that it reads",
    CONFIGS,
    ANY_PAPER,
    flag("--runs", action="store_true", help="the ids of its runs instead"),
    SCALE, PILOTS,
    flag("--json", action="store_true", help="print JSON; with --runs, every setting"),
)  # fmt: skip
def _list(options: argparse.Namespace) -> None:
    suite = suite_of(options)
    if options.runs:
        runs = runs_of(suite, options)
        print(json_text([_describe(run) for run in runs]) if options.json else "\n".join(run.id for run in runs))
        return
    lines: list[tuple[str, ...]]
    if options.paper:
        of_paper = [entry for entry in _of_paper(suite, suite.papers[options.paper])
                    if options.item in (None, entry["id"].partition("/")[2])]  # fmt: skip
        if not of_paper:
            raise UserError(
                f"{options.paper}/{options.item}: not declared, allowed: what `resync list {options.paper}` has"
            )
        lines = [("id", "at scale", "what")]
        lines += [(entry["id"], ", ".join(entry["scales"]), entry["what"]) for entry in of_paper]
    else:
        papers = [_counts(suite, paper) for paper in suite.papers.values()]
        lines = [("paper", "figures and tables", "claims", *(f"runs at {scale}" for scale in SCALES))]
        lines += [
            (paper["id"], *map(str, (paper["items"], paper["claims"], *paper["runs"].values()))) for paper in papers
        ]
    if options.json:
        print(json_text(of_paper if options.paper else papers))
    else:
        print("\n".join(aligned(lines, right=not options.paper)))


def _describe(run: Run) -> dict[str, object]:
    derived = {
        "id": run.id,
        "directory": str(run.directory),
        "config_hash": run.hash,
        "label": run.label,
        "total_steps": run.total_steps,
        "warmup_steps": run.warmup_steps,
        "local_batch_size": run.local_batch_size,
        "resources": run.resources.model_dump(),
    }
    return derived | run.model_dump(mode="json")


def _counts(suite: Suite, paper: Paper) -> dict[str, Any]:
    runs = {scale: len(suite.runs(paper.id, scale)) for scale in SCALES}
    return {"id": paper.id, "title": paper.title, "items": len(paper.items), "claims": len(paper.claims), "runs": runs}


def _of_paper(suite: Suite, paper: Paper) -> Iterator[dict[str, Any]]:
    for item in paper.items.values():
        scales = [scale for scale in SCALES if item.id in suite.items(paper.id, scale)]
        yield {"id": f"{paper.id}/{item.id}", "scales": scales, "what": item.title}
    for claim in paper.claims:
        yield {"id": f"{paper.id}/{claim.id}", "scales": [*claim.scales], "what": claim.statement}


@verb(
    "show a figure, table, claim or run: what it is, where it lies, and what came out, here or in the repository's "
    "own results",
    CONFIGS, SCALE, JSON,
    flag("id", metavar="ID", help="as `resync list PAPER` has them, a run, as `resync list PAPER --runs` has them, "
         "or the file of a figure (PNG, PDF, SVG): the runs, commits and numbers that it was drawn from"),
)  # fmt: skip
def _show(options: argparse.Namespace) -> None:
    if (file := Path(options.id)).suffix in (".png", ".pdf", ".svg"):
        print("\n".join(_drawn_from(file, options)))
        return
    options.paper, _, name = options.id.partition("/")
    suite = suite_of(options)
    paper = suite.papers[options.paper]
    claims, runs = {claim.id: claim for claim in paper.claims}, {}
    if name.count("/") == 2:
        scales = dict.fromkeys((options.scale, *SCALES))
        runs = {run.id: run for scale in reversed(scales) for run in suite.runs(paper.id, scale)}
    if not name:
        print("\n".join(_came_out(suite, paper.id, options.scale, claims)))
    elif name in paper.items:
        print("\n".join(_item(suite, paper, name, options.scale)))
    elif name in claims:
        print("\n".join([_declared(claims[name]), *_came_out(suite, paper.id, options.scale, [name])]))
    elif options.id in runs:
        run = runs[options.id]
        print(json_text(_describe(run)) if options.json else "\n".join([run.to_yaml(), *_ended(run)]))
    else:
        known = [run_id.partition("/")[2] for run_id in runs] or [*paper.items, *claims]
        raise UserError(
            f"{paper.id}: found {name!r}, allowed: an id that `resync list {paper.id}` has{suggestion(name, known)}"
        )


def _drawn_from(file: Path, options: argparse.Namespace) -> Iterator[str]:
    """What a figure says of itself, whether the CSV beside it is its own, and which of its runs are still declared."""
    from resync.papers.render.origin import read_origin  # not at the top: it needs packages that a list does not

    origin = read_origin(file.read_bytes())
    if origin is None:
        raise UserError(f"{file}: says nothing of what it was drawn from, allowed: a figure of `resync render`")
    yield f"{origin.item} at {origin.scale} scale"
    data = file.with_suffix(".csv")
    same = data.exists() and sha256(data.read_bytes()).hexdigest() == origin.data
    yield f"data: sha256 {origin.data}, {f'as {data}' if same else f'not that of {data}'}"
    yield f"trained at commit: {', '.join(origin.commits) or 'unknown'}"
    options.paper = origin.item.partition("/")[0]
    suite = suite_of(options)
    declared = {run.hash: run.id for scale in (origin.scale, "paper") for run in suite.runs(options.paper, scale)}
    yield from (f"run {run_hash}: {declared.get(run_hash, 'not declared any more')}" for run_hash in origin.runs)


def _ended(run: Run) -> Iterator[str]:
    """Where the results of a run lie, its state, and the final values of its evaluation."""
    from resync.runs.results.runs import state_of  # not at the top: it needs packages that a list does not

    state = state_of(run, Path("results"))
    yield f"results/{run.directory}: {state.status}{f', {state.reason}' if state.reason else ''}"
    for name, value in state.result.summary["final"].items() if state.result else ():
        yield f"{METRICS[name].title if name in METRICS else name}: {'NaN' if value is None else f'{value:.6g}'}"


def _declared(claim: Claim) -> str:
    return f"{claim.statement}\nsource ({claim.status}): {claim.source}"


def _item(suite: Suite, paper: Paper, name: str, scale: str) -> Iterator[str]:
    item = paper.items[name]
    scales = [other for other in suite.scales if name in suite.items(paper.id, other)]
    yield item.title
    yield from filter(None, [item.caption])
    yield f"kind {item.kind}, at {', '.join(scales)} scale; resync run {paper.id}/{name} --scale {scales[0]}"
    for at in scales:
        for folder in (Path("figures"), Path("figures/reference")):
            file = drawn_file(suite, at, f"{paper.id}/{name}", folder)
            yield from (str(path) for path in (file, file.with_suffix(".png")) if path.exists())
    named = [claim.id for claim in paper.claims if claim.item == name]
    yield from _came_out(suite, paper.id, scale, named)


def _came_out(suite: Suite, paper: str, scale: str, names: Collection[str]) -> Iterator[str]:
    """A line for each of the claims of which an audit has an effect, of yours and of the repository's own."""
    # Not at the top: they need SciPy, as a list does not.
    from resync.papers.audit.in_words import with_verdict
    from resync.papers.audit.score import is_tested

    own = Path("results", scale, paper, "audit.json")
    audits = {f"{scale} scale, your runs": claims_of(own)}
    audits |= {f"{at} scale, the repository's own runs": claims for at, claims in archived(paper).items()}
    for title, claims in audits.items():
        at = title.partition(" ")[0]
        tested = [
            claim
            for claim in claims
            if claim["id"] in names and at in claim["scales"] and (is_tested(claim) or claim["effects"])
        ]
        if tested:
            yield f"\n{title}:"
            yield from map(with_verdict, tested)


def drawn_file(suite: Suite, scale: str, name: str, figures: Path) -> Path:
    """The file of a figure or table `paper/item` that is made to be looked at."""
    paper, _, item = name.partition("/")
    return figures / scale / paper / f"{item}{'.pdf' if suite.papers[paper].is_figure(item) else '.md'}"


def archived(paper: str | None = None) -> dict[str, list[Mapping[str, Any]]]:
    """The claims of a paper, or of all, in the repository's own audits, by scale."""
    audits = {file.parent.name: list(claims_of(file)) for file in sorted(REFERENCE.glob("*/audit.json"))}
    return {scale: [claim for claim in claims if paper in (None, claim["paper"])] for scale, claims in audits.items()}


def claims_of(file: Path) -> Sequence[Mapping[str, Any]]:
    """The claims of an `audit.json`; none of one that is not there."""
    return read_json(file)["claims"] if file.exists() else ()
