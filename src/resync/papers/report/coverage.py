"""Which figures and tables exist at which scale, and why one is absent."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from resync.papers.paper import Suite
from resync.papers.paper.paper import Item, Paper
from resync.runs.run.in_words import listed

DRAWN, ARCHIVED, DECLARED, ABSENT = "drawn", "in the archive", "not drawn yet", "absent"
SIGNS = {DRAWN: "●", ARCHIVED: "◐", DECLARED: "○", ABSENT: "\N{EN DASH}"}
MEANINGS = {
    DRAWN: "drawn here",
    ARCHIVED: "drawn in the archive",
    DECLARED: "declared, not drawn yet",
    ABSENT: "not at this scale",
}


@dataclass(frozen=True)
class AtScale:
    """An item at one scale: its state, and the reason where it is absent or the command that draws it."""

    scale: str
    state: str
    note: str


@dataclass(frozen=True)
class ItemAtScales:
    """One figure or table of a paper at every scale."""

    paper: str
    item: Item
    cells: tuple[AtScale, ...]

    @property
    def why(self) -> str:
        """The scales at which the item is absent, and why: `gpu: methods exists only at smoke and paper scale`."""
        scales: dict[str, list[str]] = {}
        for cell in self.cells:
            if cell.state == ABSENT:
                scales.setdefault(cell.note, []).append(cell.scale)
        return "; ".join(f"{listed(where)}: {reason}" for reason, where in scales.items())


@dataclass(frozen=True)
class Count:
    """Of a paper's items at one scale, in their order: which are drawn, declared or absent."""

    scale: str
    states: tuple[str, ...]

    @property
    def drawn(self) -> int:
        return self.states.count(DRAWN)

    @property
    def declared(self) -> int:
        return len(self.states) - self.states.count(ABSENT)

    @property
    def text(self) -> str:
        """`3 of 5` are drawn, `0 of 5, 4 in the archive`; `none` exists."""
        archived = self.states.count(ARCHIVED)
        kept = f", {archived} in the archive" if archived else ""
        return f"{self.drawn} of {self.declared}{kept}" if self.declared else "none"


def coverage(suite: Suite, figures: Path) -> list[ItemAtScales]:
    """A row per item of all papers, with a cell per scale."""
    return [
        ItemAtScales(paper.id, item, tuple(_cell(paper, item, scale, figures) for scale in suite.scales))
        for paper in suite.papers.values()
        for item in paper.items.values()
    ]


def by_paper(rows: Iterable[ItemAtScales]) -> dict[str, tuple[Count, ...]]:
    """The counts of each paper at every scale."""
    return {paper: _counts(list(of_paper)) for paper, of_paper in groupby(rows, key=lambda row: row.paper)}


def of_all(rows: Iterable[ItemAtScales]) -> Mapping[str, Count]:
    """The counts over all papers by scale."""
    return {count.scale: count for count in _counts(list(rows))}


def _counts(rows: list[ItemAtScales]) -> tuple[Count, ...]:
    columns = zip(*(row.cells for row in rows), strict=True)
    return tuple(Count(cells[0].scale, tuple(cell.state for cell in cells)) for cells in columns)


def _cell(paper: Paper, item: Item, scale: str, figures: Path) -> AtScale:
    if not paper.has_item(item.id, scale):
        # The series that the scale lacks, or the experiment if it lacks all of it.
        whole = {series: series.partition("/")[0] for series in item.series if scale not in _scales_of(paper, series)}
        names = [
            series if scale in _scales_of(paper, experiment) else experiment for series, experiment in whole.items()
        ]
        only = [f"{name} exists only at {listed(_scales_of(paper, name))} scale" for name in dict.fromkeys(names)]
        return AtScale(scale, ABSENT, ", ".join(only))
    suffix = ".png" if paper.is_figure(item.id) else ".md"
    file = f"{scale}/{paper.id}/{item.id}{suffix}"
    state = ARCHIVED if (figures / "reference" / file).exists() else DECLARED
    return AtScale(
        scale, DRAWN if (figures / file).exists() else state, f"snakemake figures/{scale}/{paper.id}/{item.id}{suffix}"
    )


def _scales_of(paper: Paper, reference: str) -> list[str]:
    experiment, _, series = reference.partition("/")
    scales = paper.experiments[experiment].scales.items()
    return [scale for scale, existing in scales if existing and (not series or series in existing)]
