"""Blocks of README.md and the docs that show the committed results: counts, items, claims, predicted times.

    <!--results: status-->
    ...
    <!--/results-->

What stands between the two is made again from the archive, by `resync reference renew`, and is compared by
`resync reference check` and the tests.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from os.path import relpath
from pathlib import Path

from resync.base.errors import UserError
from resync.base.files import read_json
from resync.base.settings.errors import not_among
from resync.base.text_tables import markdown, markdown_text, pipe_table
from resync.papers.archive.build import ENVIRONMENT, ArchiveFolders
from resync.papers.archive.page_claims import claims
from resync.papers.archive.unpack import scales_of
from resync.papers.audit.score import claims_of_papers, counted_in_words
from resync.papers.audit.verdicts import AGREES, FAILURES, OPEN
from resync.papers.paper import Suite
from resync.papers.plan.forecast import Forecast, forecast, nodes_of
from resync.papers.plan.network import LINKS
from resync.papers.report.coverage import (
    ABSENT,
    DECLARED,
    DRAWN,
    MEANINGS,
    SIGNS,
    AtScale,
    ItemAtScales,
    coverage,
    of_all,
)

_BLOCK = re.compile(
    r"^(<!--results: (?P<name>[a-z]+)(?P<arguments>(?:\s+[\w/]+)*)-->\n).*?^(<!--/results-->)", re.DOTALL | re.MULTILINE
)


def fill(page: Path, suite: Suite, place: ArchiveFolders) -> str:
    """The text of a page with every block made again.

    Raises ValueError for a block of another name, or other arguments.
    """

    def block(match: re.Match[str]) -> str:
        if match["name"] not in BLOCKS:
            raise UserError(f"<!--results: {not_among(match['name'], BLOCKS)}")
        make, arguments = BLOCKS[match["name"]], match["arguments"].split()
        if bool(arguments) != (make is claims):
            raise UserError(f"<!--results: {match['name']}: arguments are for claims, as in mini/sgp sgp_4_accuracy")
        where = (page.parent,) if make in (papers, items_by_scale) else ()
        return "\n".join([match[1], *make(suite, place, *where, *arguments), "", match[4]])

    return _BLOCK.sub(block, page.read_text(encoding="utf-8"))


def outdated(pages: Iterable[Path], suite: Suite, place: ArchiveFolders) -> Iterator[str]:
    """A line for each page that shows something else than the archive has."""
    for page in pages:
        try:
            if fill(page, suite, place) != page.read_text(encoding="utf-8"):
                yield f"{page}: shows other results than {place.archive}; `resync reference renew` writes them"
        except ValueError as error:
            yield f"{page}: {error}"


def status(suite: Suite, place: ArchiveFolders) -> Iterator[str]:
    """How far the suite is, in counts, by scale: figures and tables, and what came of claims of papers."""
    lines = []
    rows = coverage(suite, place.figures)
    for scale in scales_of(place.archive):
        audit, runs = read_json(place.archive / scale / "audit.json"), read_json(place.archive / scale / ENVIRONMENT)
        said = counted_in_words(claims_of_papers(audit["claims"], scale))
        lines.append((f"{scale}, {runs['runs']:,} runs", of_all(rows)[scale].text, said))
    yield from markdown(["scale", "figures, tables", "claims of papers"], lines, "lrl")


def papers(suite: Suite, place: ArchiveFolders, folder: Path) -> Iterator[str]:
    """A row per paper of the archive: what came of its numbers and claims, at all scales together, and a figure.

    The figure is the first of its gallery that is drawn, or else the first one.
    """
    scores = [read_json(place.archive / scale / "audit.json")["score"]["papers"] for scale in scales_of(place.archive)]
    rows, lines = coverage(suite, place.figures), []
    for paper in suite.papers.values():
        of_paper = [score[paper.id] for score in scores if paper.id in score]
        if not of_paper:  # such as a question of the user's
            continue
        claims = [counts for score in of_paper for of in ("claims", "exploratory") for counts in score[of].values()]
        figures = relpath(place.figures, folder)
        drawn = {
            row.item.id: f"[{row.item.id}]({figures}/{cell.scale}/{paper.id}/{row.item.id}.svg)"
            for row in rows
            for cell in row.cells
            if (row.paper, cell.state) == (paper.id, DRAWN) and paper.is_figure(row.item.id)
        }
        first = next((drawn[item] for item in (*paper.gallery, *drawn) if item in drawn), "")
        name = f"[{markdown_text(paper.name)}](https://arxiv.org/abs/{paper.arxiv})" if paper.arxiv else paper.name
        lines.append((name, _decided(score["numbers"] for score in of_paper), _decided(claims), first))
    yield from pipe_table(["paper (agree / do not / open)", "numbers", "claims", "a figure"], lines, "lrrl")


def _decided(counts: Iterable[Mapping[str, int]]) -> str:
    """How many agree, do not, and are open; a dash if none of them is."""
    counts = list(counts)
    of = ((AGREES,), FAILURES, (OPEN,))
    sums = [sum(numbers.get(word, 0) for numbers in counts for word in words) for words in of]
    return " / ".join(map(str, sums)) if any(sums) else "\N{EN DASH}"


def items_by_scale(suite: Suite, place: ArchiveFolders, folder: Path) -> Iterator[str]:
    """A row per figure and table with a sign for each scale, which leads to what is drawn; then those not declared."""
    signs = ", ".join(f"{SIGNS[state]} {MEANINGS[state]}" for state in (DRAWN, DECLARED, ABSENT))
    yield from (f"{signs}.", "")

    def sign(row: ItemAtScales, cell: AtScale) -> str:
        suffix = ".svg" if suite.papers[row.paper].is_figure(row.item.id) else ".md"
        file = place.figures / cell.scale / row.paper / f"{row.item.id}{suffix}"
        return f"[{SIGNS[DRAWN]}]({relpath(file, folder)})" if cell.state == DRAWN else SIGNS[cell.state]

    lines = [
        (markdown_text(f"{suite.papers[row.paper].name}: {row.item.title}"), *(sign(row, cell) for cell in row.cells))
        for row in coverage(suite, place.figures)
    ]
    yield from pipe_table(["figure or table", *suite.scales], lines, "l" + "c" * len(suite.scales))
    missing = [
        (markdown_text(f"{paper.name}: {item.title}"), markdown_text(item.reason))
        for paper in suite.papers.values()
        for item in paper.missing
    ]
    yield ""
    yield from pipe_table(["absent", "because"], missing, "ll")


def predictions(suite: Suite, place: ArchiveFolders) -> Iterator[str]:
    """Every published time that the model of the network predicts, with the model's and its error."""
    from resync.tasks.models import num_parameters

    lines: list[tuple[str, ...]] = []
    for paper in suite.papers.values():
        timed = [value for value in paper.published if value.network]
        of = {value.experiment for value in timed}
        runs = {(run.experiment, run.series): run for run in suite.runs(paper.id, "paper") if run.experiment in of}
        models = {(run.model.model_dump_json(), run.data.name): run for run in runs.values()}
        sizes = {
            key: num_parameters(run.model, run.facts["input_shape"], run.facts["num_classes"])
            for key, run in models.items()
        }
        sized = [(run, sizes[run.model.model_dump_json(), run.data.name]) for run in runs.values()]
        for name in sorted({value.network for value in timed if value.network}):
            network = partial(nodes_of, link=LINKS[name], inside=LINKS["pcie_3_x16"])
            forecasts = forecast(sized, paper.published, network)[0]
            lines += [
                (paper.name, *_prediction(item)) for item in forecasts if item.published and item.basis == "predicted"
            ]
    yield from markdown(["paper", "series", "published", "model", "error"], lines, "llrrr")


def _prediction(item: Forecast) -> tuple[str, str, str, str]:
    assert item.published
    assert item.error is not None
    known, unit = item.published, item.published.unit
    series = "/".join(item.clock.run.split("/")[1:3])
    return series, f"{known.value:g} {unit} ({known.status})", f"{item.beside:.3g} {unit}", f"{100 * item.error:+.1f} %"


BLOCKS: Mapping[str, Callable[..., Iterator[str]]] = {
    "status": status,
    "papers": papers,
    "items": items_by_scale,
    "claims": claims,
    "predictions": predictions,
}
"""What stands between the comments, by the name in the first one."""
