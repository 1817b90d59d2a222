"""Blocks of README.md and the docs that show the committed results: scores, coverage, figures, claims, predicted times.

    <!--results: scores-->
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
from typing import Any

from resync.archive.build import ENVIRONMENT, ArchiveFolders
from resync.archive.page_claims import claims
from resync.archive.unpack import scales_of
from resync.audit.rows import CLAIM, MEASURED, OWN_CLAIM
from resync.audit.verdicts import CONTRADICTED, OUTSIDE, SMALLER
from resync.errors import UserError
from resync.files import read_json
from resync.paper import Suite
from resync.plan.forecast import Forecast, forecast, nodes_of
from resync.plan.network import LINKS
from resync.report.coverage import ABSENT, DRAWN, MEANINGS, SIGNS, AtScale, Row, by_paper, coverage, of_all
from resync.run.in_words import scale_of
from resync.settings.errors import not_among
from resync.text_tables import markdown, markdown_text, pipe_table

_BLOCK = re.compile(
    r"^(<!--results: (?P<name>[a-z]+)(?P<arguments>(?:\s+[\w/]+)*)-->\n).*?^(<!--/results-->)", re.DOTALL | re.MULTILINE
)
_COLUMNS = 2
"""Of the gallery."""


def fill(page: Path, suite: Suite, place: ArchiveFolders) -> str:
    """The text of a page with every block made again.

    Raises ValueError for a block of another name, or other arguments.
    """

    def block(found: re.Match[str]) -> str:
        if found["name"] not in BLOCKS:
            raise UserError(f"<!--results: {not_among(found['name'], BLOCKS)}")
        make, arguments = BLOCKS[found["name"]], found["arguments"].split()
        if bool(arguments) != (make is claims):
            raise UserError(f"<!--results: {found['name']}: arguments are for claims, as in mini/sgp sgp_4_accuracy")
        where = (page.parent,) if make in (gallery, items_by_scale) else ()
        return "\n".join([found[1], *make(suite, place, *where, *arguments), "", found[4]])

    return _BLOCK.sub(block, page.read_text(encoding="utf-8"))


def outdated(pages: Iterable[Path], suite: Suite, place: ArchiveFolders) -> Iterator[str]:
    """A line for each page that shows something else than the archive has."""
    for page in pages:
        try:
            if fill(page, suite, place) != page.read_text(encoding="utf-8"):
                yield f"{page}: shows other results than {place.archive}; `resync reference renew` writes them"
        except ValueError as error:
            yield f"{page}: {error}"


def scores(suite: Suite, place: ArchiveFolders) -> Iterator[str]:
    """A table per scale: the claims of each paper, those of our own and its measured numbers, by their verdicts."""
    for number, scale in enumerate(scales_of(place.archive)):
        yield from [""] * (number > 0)  # ends the table before
        found, runs = read_json(place.archive / scale / "audit.json"), read_json(place.archive / scale / ENVIRONMENT)
        lines = [(paper.name, *_verdicts(found, {paper.id})) for paper in suite.papers.values()]
        lines.append(("All papers", *_verdicts(found, set(suite.papers))))
        yield from (f"**Scale `{scale}`**, {runs['runs']} runs:", "")
        headings = [
            "paper",
            "claims: hold, rejected, outside their regime, open",
            "claims of our own",
            "numbers: reproduced",
        ]
        yield from markdown(headings, lines, "lrrr")


def _verdicts(found: Mapping[str, Any], papers: set[str]) -> tuple[str, str, str]:
    numbers = [row["verdict"] for row in found["rows"] if row["paper"] in papers and row["kind"] == MEASURED]
    known = len(numbers) - numbers.count("unknown")
    counts = f"{numbers.count('reproduced')} of {known}"
    return _counts(found, papers, CLAIM), _counts(found, papers, OWN_CLAIM), counts


def _counts(found: Mapping[str, Any], papers: set[str], kind: str) -> str:
    claims = [claim["verdict"] for claim in found["claims"] if claim["paper"] in papers and claim["kind"] == kind]
    groups = ("holds",), (SMALLER, CONTRADICTED), (OUTSIDE, "not exercised")
    counts = [sum(map(claims.count, words)) for words in groups]
    return ", ".join(map(str, [*counts, len(claims) - sum(counts)])) if claims else ""


def papers_by_scale(suite: Suite, place: ArchiveFolders) -> Iterator[str]:
    """How many figures and tables of each paper are drawn from committed runs, of those that exist at each scale."""
    rows = coverage(suite, place.figures)
    counts = {suite.papers[paper].name: found for paper, found in by_paper(rows).items()}
    counts["All papers"] = tuple(of_all(rows).values())
    lines = [(name, *(count.text for count in found)) for name, found in counts.items()]
    yield from markdown(["drawn from committed runs", *suite.scales], lines, "l" + "r" * len(suite.scales))


def items_by_scale(suite: Suite, place: ArchiveFolders, folder: Path) -> Iterator[str]:
    """A row per figure and table with a sign for each scale, which leads to what is drawn, and why it is absent."""
    signs = ", ".join(f"{SIGNS[state]} {meaning}" for state, meaning in MEANINGS.items())
    yield from (f"{signs}.", "")

    def sign(row: Row, cell: AtScale) -> str:
        suffix = ".svg" if suite.papers[row.paper].is_figure(row.item.id) else ".md"
        file = place.figures / cell.scale / row.paper / f"{row.item.id}{suffix}"
        return f"[{SIGNS[DRAWN]}]({relpath(file, folder)})" if cell.state == DRAWN else SIGNS[cell.state]

    lines = [
        (
            markdown_text(f"{suite.papers[row.paper].name}: {row.item.title}"),
            *(sign(row, cell) for cell in row.cells),
            markdown_text(row.why if any(cell.state == ABSENT for cell in row.cells) else ""),
        )
        for row in coverage(suite, place.figures)
    ]
    lines += [
        (markdown_text(f"{paper.name}: {item.title}"), *SIGNS[ABSENT] * len(suite.scales), markdown_text(item.reason))
        for paper in suite.papers.values()
        for item in paper.missing
    ]
    headings = ["figure or table", *suite.scales, "why it is absent"]
    yield from pipe_table(headings, lines, "l" + "c" * len(suite.scales) + "l")


def gallery(suite: Suite, place: ArchiveFolders, folder: Path) -> Iterator[str]:
    """The first figure of each paper that shows committed runs, or else its first one, with its scale below."""
    shown = [
        f"![{markdown_text(title)}]({relpath(file, folder)})<br>**{setting}**: {markdown_text(title)}"
        for scale in scales_of(place.archive)
        for title, setting, file in _first_figures(suite, place, scale)
    ]
    shown += [""] * (-len(shown) % _COLUMNS)
    rows = (shown[at : at + _COLUMNS] for at in range(0, len(shown), _COLUMNS))
    yield from pipe_table([""] * _COLUMNS, rows, "c" * _COLUMNS)


def _first_figures(suite: Suite, place: ArchiveFolders, scale: str) -> Iterator[tuple[str, str, Path]]:
    drawn = {
        (row.paper, row.item.id)
        for row in coverage(suite, place.figures)
        for cell in row.cells
        if (cell.scale, cell.state) == (scale, DRAWN)
    }
    for paper in suite.papers.values():
        items = [item for item in paper.figures if (paper.id, item.id) in drawn]
        items.sort(key=lambda item: (not item.options.of_paper_scale, not item.series or item.options.planned))
        for item in items[:1]:
            runs, references = suite.item_runs(paper.id, item.id, scale), suite.references(paper.id, item.id, scale)
            file = place.figures / scale / paper.id / f"{item.id}.png"
            yield f"{paper.name}: {item.title_at(runs, references)}", scale_of(runs, references), file


def predictions(suite: Suite, place: ArchiveFolders) -> Iterator[str]:
    """Every published time that the model of the network predicts, with the model's and its error."""
    from resync.models import num_parameters

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
            found = forecast(sized, paper.published, network)[0]
            lines += [
                (paper.name, *_prediction(item)) for item in found if item.published and item.basis == "predicted"
            ]
    yield from markdown(["paper", "series", "published", "model", "error"], lines, "llrrr")


def _prediction(item: Forecast) -> tuple[str, str, str, str]:
    assert item.published
    assert item.error is not None
    known, unit = item.published, item.published.unit
    series = "/".join(item.clock.run.split("/")[1:3])
    return series, f"{known.value:g} {unit} ({known.status})", f"{item.beside:.3g} {unit}", f"{100 * item.error:+.1f} %"


BLOCKS: Mapping[str, Callable[..., Iterator[str]]] = {
    "scores": scores,
    "coverage": papers_by_scale,
    "items": items_by_scale,
    "gallery": gallery,
    "claims": claims,
    "predictions": predictions,
}
"""What stands between the comments, by the name in the first one."""
