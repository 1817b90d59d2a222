"""Figures and tables on the page of a paper: their files, their cells, their claims and published numbers."""

import re
import struct
from pathlib import Path
from typing import Any

from resync.config.in_words import setting_of
from resync.config.paper import Item, Paper
from resync.report.content import CLAIM, Content
from resync.report.coverage import ABSENT, Row
from resync.report.curves import item_chart
from resync.report.writer import Writer
from resync.text_tables import markdown_cells, plain_text

SUFFIXES = ("svg", "pdf", "png", "csv", "md", "tex")
_PNG_DPI, _PIXELS_PER_INCH = 220, 100
"""Resolution of the figures, and the width at which their smallest letters, of 6.5 points, are 9 pixels high."""


def item_entry(content: Content, paper: Paper, row: Row, writer: Writer) -> dict[str, Any]:
    """What the template shows of an item; its files are copied into the site."""
    item = row.item
    cell = next(cell for cell in row.cells if cell.scale == content.scale)
    entry: dict[str, Any] = {"item": item, "cell": cell, "elsewhere": [c for c in row.cells if c.state != ABSENT]}
    if cell.state == ABSENT:
        return entry
    stem = content.figures / content.scale / paper.id / item.id
    files = {suffix: stem.with_suffix(f".{suffix}") for suffix in SUFFIXES}
    files = {suffix: file for suffix, file in files.items() if file.exists()}
    for file in files.values():
        writer.copy(file, f"figures/{paper.id}/{file.name}")
    runs = content.suite.item_runs(paper.id, item.id, content.scale) if item.series else []
    lines = [line for line in content.lines_of(paper.id) if item.id in content.items_of_line(line)]
    return entry | {
        "files": {suffix: f"figures/{paper.id}/{file.name}" for suffix, file in files.items()},
        "picture": _picture(files, paper, item),
        "table": _cells(files["md"]) if "md" in files else None,
        "chart": item_chart(content, paper, item),
        "setting": setting_of(runs) if runs else "",
        "series": list(dict.fromkeys((run.experiment, run.series, run.label) for run in runs)),
        "claims": [line for line in lines if line["kind"] == CLAIM],
        "rows": [line for line in lines if line["kind"] != CLAIM],
    }


def _picture(files: dict[str, Path], paper: Paper, item: Item) -> dict[str, Any] | None:
    """The picture of a figure, its size on the page, and the width below which its letters become too small."""
    if "png" not in files:
        return None
    with files["png"].open("rb") as file:
        header = file.read(24)
    if len(header) < 24:
        return None
    width, height = (round(pixels * _PIXELS_PER_INCH / _PNG_DPI) for pixels in struct.unpack(">II", header[16:24]))
    suffix = "svg" if "svg" in files else "png"
    return {"path": f"figures/{paper.id}/{item.id}.{suffix}", "width": width, "height": height}


def _cells(file: Path) -> dict[str, Any] | None:
    """The headings, rows and note of a table, from the Markdown in which it was written."""
    lines = file.read_text(encoding="utf-8").splitlines()
    numbers = [number for number, line in enumerate(lines) if line.startswith("|")]
    if len(numbers) < 3:
        return None
    headings, _, *rows = (markdown_cells(lines[number]) for number in numbers)
    return {
        "headings": [plain_text(cell) for cell in headings],
        "rows": [[_bold(cell) for cell in row] for row in rows],
        "note": plain_text(" ".join(filter(None, lines[numbers[-1] + 1 :]))),
    }


def _bold(cell: str) -> tuple[str, bool]:
    """The plain text of a cell, and whether it is set in bold."""
    found = re.fullmatch(r"\*\*(.+)\*\*", cell)
    return plain_text(found[1] if found else cell), bool(found)
