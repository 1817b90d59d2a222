"""Which figures and tables exist at which scale, and why one is absent."""

from dataclasses import dataclass
from pathlib import Path

from resync.config import Suite
from resync.config.paper import Item, Paper

DRAWN, DECLARED, ABSENT = "drawn", "not drawn yet", "absent"


@dataclass(frozen=True)
class Cell:
    """An item at one scale: its state, and the reason where it is absent or the command that draws it."""

    scale: str
    state: str
    note: str


@dataclass(frozen=True)
class Row:
    """One figure or table of a paper at every scale."""

    paper: str
    item: Item
    cells: tuple[Cell, ...]


def coverage(suite: Suite, figures: Path) -> list[Row]:
    """A row per item of all papers, with a cell per scale."""
    return [
        Row(paper.id, item, tuple(_cell(paper, item, scale, figures) for scale in suite.scales))
        for paper in suite.papers.values()
        for item in paper.items.values()
    ]


def totals(rows: list[Row], scale: str) -> tuple[int, int, int]:
    """The numbers of items that are drawn, that exist, and that are declared at all, at a scale."""
    states = [cell.state for row in rows for cell in row.cells if cell.scale == scale]
    return states.count(DRAWN), len(states) - states.count(ABSENT), len(states)


def _cell(paper: Paper, item: Item, scale: str, figures: Path) -> Cell:
    if not paper.has_item(item.id, scale):
        missing = [reference for reference in item.series if not _exists(paper, reference, scale)]
        return Cell(scale, ABSENT, f"not declared at this scale: {', '.join(missing)}")
    file = figures / scale / paper.id / f"{item.id}.png"
    command = f"snakemake figures/{scale}/{paper.id}/{item.id}.pdf"
    return Cell(scale, DRAWN if file.exists() else DECLARED, command)


def _exists(paper: Paper, reference: str, scale: str) -> bool:
    experiment, _, series = reference.partition("/")
    existing = paper.experiments[experiment].scales.get(scale, ())
    return bool(existing) and (not series or series in existing)
