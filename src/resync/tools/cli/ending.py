"""How a workflow ends: what was done, what to open, what came out, what to type next."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from resync.papers.audit.in_words import with_verdict
from resync.papers.audit.score import claims_of_papers, counted_in_words, is_tested
from resync.papers.paper import Suite
from resync.runs.metrics.registry import METRICS
from resync.runs.results.runs import RunState, state_of
from resync.runs.results.status import PROBLEMS, duration
from resync.runs.run import Run
from resync.tools.cli.declared import archived, claims_of, drawn_file

_MOST = 12
"""Claims and failures that are listed one by one."""


def ending(
    suite: Suite, scale: str, papers: Sequence[str], items: Sequence[str], seconds: float, code: int = 0
) -> tuple[str, bool]:
    """The text after a workflow for whole papers, or for some `items` as `paper/item`, and whether a run failed.

    Snakemake ended with `code`. Where that is an error, the text says so and how far it came, and no more.
    """
    runs = _runs(suite, scale, papers, items)
    states = [state_of(run, Path("results")) for run in runs]
    failed = [state for state in states if state.status in PROBLEMS]
    finished = sum(state.has_ended for state in states)
    all_items = [*items, *(f"{paper}/{item}" for paper in papers for item in suite.items(paper, scale))]
    drawn = [file for name in all_items if (file := drawn_file(suite, scale, name, Path("figures"))).exists()]
    how = f"Ended with exit code {code} after" if code else "Done in"
    lines = [f"{how} {duration(seconds)}: {finished} of {len(runs)} runs finished, {len(drawn)} of {len(all_items)} "
             "figures and tables drawn."]  # fmt: skip
    if failed:
        lines += [f"{len(failed)} of {len(runs)} runs failed; what does not depend on them is drawn:"]
        lines += [f"  {state.run.id}: {state.status}: {state.reason}" for state in failed[:_MOST]]
        lines += [f"  and {len(failed) - _MOST} more: resync status --problems"] if len(failed) > _MOST else []
    if code or failed:
        return "\n".join([*lines, "The same command continues."]), bool(failed)
    lines += unmeasured(suite, scale, all_items, states)
    claims = [claim for paper in papers for claim in claims_of(Path("results", scale, paper, "audit.json"))]
    tested = [claim for claim in claims if scale in claim["scales"]]
    if papers and not tested and scale == "smoke":
        lines += ["Smoke scale shows that everything works here. Its models are tiny: it tests no claim of a paper."]
    lines += [
        "",
        *_open(scale, papers, len(papers) == len(suite.papers), drawn),
        *_came_out(tested),
        "",
        *_next(suite, scale, papers, items),
    ]
    return "\n".join(lines), False


def unmeasured(suite: Suite, scale: str, items: Sequence[str], states: Sequence[RunState]) -> Iterator[str]:
    """For each metric that `items` show and that runs lack, which are older than its code: what trains them again."""
    trained = {state.run.id: state.result for state in states if state.has_ended and state.result}
    lacking: dict[tuple[str, str], set[str]] = {}
    for name in items:
        paper, _, item = name.partition("/")
        ended = [trained[run.id] for run in suite.item_runs(paper, item, scale) if run.id in trained]
        for metric in suite.papers[paper].item_at(item, scale).options.shown_metrics:
            ids = {str(result.directory) for result in ended if not (result.imported or result.has(metric))}
            if METRICS[metric].files and ids:
                lacking.setdefault((paper, metric), set()).update(ids)
    for (paper, metric), ids in lacking.items():
        yield f"{len(ids)} runs of {paper} have not measured {metric}; to train them again:"
        yield f"  snakemake {paper} -R train --config scale={scale}"


def _runs(suite: Suite, scale: str, papers: Sequence[str], items: Sequence[str]) -> list[Run]:
    runs = [run for paper in papers for run in suite.runs(paper, scale)]
    of_items = (suite.item_runs(name.partition("/")[0], name.partition("/")[2], scale) for name in items)
    return list({run.id: run for some in (runs, *of_items) for run in some}.values())


def _open(scale: str, papers: Sequence[str], all_papers: bool, drawn: Sequence[Path]) -> Iterator[str]:
    """What to look at: of all papers the site and the page of all scales, of some their pages of the site."""
    site = Path("results", scale, "site")
    pages = [site, Path("results")] if all_papers else [site / paper for paper in papers]
    places = [str(page / "index.html") for page in pages if (page / "index.html").exists()]
    more = f"    and {len(drawn) - 1} more" if len(drawn) > 1 else ""
    places += [f"{drawn[0]}{more}"] if drawn else []
    for place in places:
        yield _line("Open" if place == places[0] else "", place)


def _came_out(tested: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not tested:
        return
    yield ""
    if len(tested) <= _MOST:
        for claim in tested:
            yield with_verdict(claim)
    else:
        yield _line("Claims", counted_in_words(tested))


def _next(suite: Suite, scale: str, papers: Sequence[str], items: Sequence[str]) -> Iterator[str]:
    named = papers[0] if len(papers) == 1 else items[0] if items else ""
    paper, _, item = named.partition("/")
    kept = {at: claims for at, claims in archived(paper or None).items() if claims}
    of_item = {claim.id for claim in suite.papers[paper].claims if claim.item == item} if item else ()
    for at, claims in kept.items():
        of_papers = [claim for claim in claims_of_papers(claims, at) if not item or claim["id"] in of_item]
        if at != scale and any(map(is_tested, of_papers)):
            yield _line(f"At {at}", f"{counted_in_words(of_papers)} (the repository's own runs)")
    if kept and (of_item or not item):
        yield _line("", "resync show " + (named or "PAPER"), "what each claim says, and what came out")
    if kept:
        yield _line("", "docs/findings.md", "what was found")
    if named and not kept:
        yield _line("Next", f"change paper_configs/{paper}", "the same command trains what changed")
        yield _line("", "docs/own_experiment.md", "other models, data and algorithms")
        return
    yield _line("Next", "resync new paper question", "your own comparison, in ten minutes")
    larger = islice((at for at in suite.scales if at != scale and any(suite.runs(p, at) for p in papers)), 1)
    for at in larger:
        yield _line("", f"resync run {named} --scale {at} -n".replace("  ", " "), f"what {at} scale would train")
    yield _line("", "docs/cluster.md", "the published trainings")


def _line(head: str, text: str, what: str = "") -> str:
    return f"{head:<11}{text:<44}{what}".rstrip()
