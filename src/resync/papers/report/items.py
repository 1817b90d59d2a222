"""Figures and tables on the page of a paper: their files, their cells, their claims and published numbers."""

import re
from itertools import groupby
from pathlib import Path
from typing import Any

from PIL import Image

from resync.base.files import lines_of
from resync.base.text_tables import markdown_cells, plain_text
from resync.papers.audit.rows import CLAIMS
from resync.papers.paper.paper import Item, Paper
from resync.papers.render.style import PNG_DPI
from resync.papers.report.content import Content
from resync.papers.report.coverage import ABSENT, ItemAtScales
from resync.papers.report.curves import item_chart, lines, script
from resync.papers.report.points import panels
from resync.papers.report.writer import Writer
from resync.runs.run.in_words import setting_of

_SUFFIXES = {"figure": ("svg", "pdf", "png", "csv"), "table": ("md", "tex", "csv")}
_CELL = re.compile(r"(?P<bold>\*\*)?(?P<text>.*?)(?(bold)\*\*)(<sup>(?P<mark>.*)</sup>)?", re.DOTALL)
_PIXELS_PER_INCH = 100
"""The width at which the smallest letters of a figure are 9 pixels high."""


def item_entry(content: Content, paper: Paper, row: ItemAtScales, writer: Writer) -> dict[str, Any]:
    """What the template shows of an item; its files are copied into the site."""
    item = row.item
    cell = next(cell for cell in row.cells if cell.scale == content.scale)
    entry: dict[str, Any] = {
        "item": item,
        "title": item.title,
        "cell": cell,
        "elsewhere": [c for c in row.cells if c.state != ABSENT],
    }
    if cell.state == ABSENT:
        return entry
    folder = content.figures / content.scale / paper.id
    suffixes = _SUFFIXES["figure" if paper.is_figure(item.id) else "table"]
    files = {suffix: file for suffix in suffixes if (file := folder / f"{item.id}.{suffix}").exists()}
    for file in files.values():
        writer.copy(file, f"figures/{paper.id}/{file.name}")
    runs = content.suite.item_runs(paper.id, item.id, content.scale) if item.series else []
    references = content.suite.references(paper.id, item.id, content.scale)
    shown = [run for run in runs if run.id in content.states]  # others are of published settings, and need no training
    ended = {(run.experiment, run.series) for run in shown if content.states[run.id].has_ended}
    audited = [line for line in content.lines_of(paper.id) if item.id in content.items_of_line(line)]
    return entry | {
        "files": {suffix: f"figures/{paper.id}/{file.name}" for suffix, file in files.items()},
        "picture": _picture(files, paper, item),
        "table": _cells(files["md"]) if "md" in files else None,
        "chart": item_chart(content, paper, item) or _chart_of_points(content, paper, item, files, writer),
        "title": item.title_at(runs, references),
        "setting": setting_of(runs, references) if runs or references else "",
        "series": list(dict.fromkeys((run.experiment, run.series, run.label) for run in shown)),
        "absent": list(
            dict.fromkeys(run.label for run in shown if ended and (run.experiment, run.series) not in ended)
        ),
        "claims": [line for line in audited if line["kind"] in CLAIMS],
        "rows": [line for line in audited if line["kind"] not in CLAIMS],
    }


def _chart_of_points(
    content: Content, paper: Paper, item: Item, files: dict[str, Path], writer: Writer
) -> dict[str, Any] | None:
    if "csv" not in files or "md" in files:  # of a table
        return None
    shown = lines(content, [(paper.id, *pair) for pair in paper.series_of(item.id, content.scale)])
    name = f"figures/{paper.id}/{item.id}"
    parts = panels(files["csv"], {line["label"]: (line["color"], line["dash"]) for line in shown})
    writer.text(f"{name}/data.js", script(name, {"panels": parts}))
    return {"points": name}


def _picture(files: dict[str, Path], paper: Paper, item: Item) -> dict[str, Any] | None:
    if "png" not in files:
        return None
    with Image.open(files["png"]) as picture:
        width, height = (round(pixels * _PIXELS_PER_INCH / PNG_DPI) for pixels in picture.size)
    suffix = "svg" if "svg" in files else "png"
    return {"path": f"figures/{paper.id}/{item.id}.{suffix}", "width": width, "height": height}


def _cells(file: Path) -> dict[str, Any] | None:
    text = lines_of(file.read_text(encoding="utf-8"))
    numbers = [number for number, line in enumerate(text) if line.startswith("|")]
    if len(numbers) < 3:
        return None
    headings, _, *rows = (markdown_cells(text[number]) for number in numbers)
    titles = [plain_text(cell) for cell in headings]
    groups = [title.rpartition(", ")[0] for title in titles]
    alone = {group for group in groups if groups.count(group) == 1}
    pairs = [
        ("", title) if group in alone or not group else (group, title.rpartition(", ")[2])
        for group, title in zip(groups, titles, strict=True)
    ]
    return {
        "groups": [(group, len(list(columns))) for group, columns in groupby(group for group, _ in pairs)],
        "headings": [title for _, title in pairs],
        "rows": [[_styled(cell) for cell in row] for row in rows],
        "note": plain_text(next(filter(None, reversed(text[numbers[-1] + 1 :])), "")),
    }


def _styled(cell: str) -> tuple[str, bool, str]:
    match = _CELL.fullmatch(cell)
    assert match
    return plain_text(match["text"]), match["bold"] is not None, plain_text(match["mark"] or "")
