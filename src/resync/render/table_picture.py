"""A table as a picture, in the style of booktabs."""

from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from resync.render.style import COLUMN, GREY, SMALL
from resync.render.table import Cell, Table
from resync.render.table_layout import MARGIN, MARK, POINTS_PER_INCH, Layout
from resync.render.text import drawn, has_symbols, width_of, wrapped

_HEAVY, _LIGHT, _HAIR = 0.9, 0.5, 0.35
_ROW, _LINE = 1.6, 1.2
"""Distances of rows, and of lines of a heading, in the size of the text."""


def picture(table: Table, layout: Layout) -> Figure:
    """The table as large as its cells require, with its note in lines of the same width below."""
    least = COLUMN * POINTS_PER_INCH - 2 * MARGIN
    notes = wrapped(table.note, max(layout.width, least), SMALL)
    width = max(layout.width, *(width_of(line, SMALL) for line in notes), 0.0) + 2 * MARGIN
    titles = max(len(column.heading) for column in layout.columns)
    above = max((len(group.heading) for group in layout.groups), default=0)
    head = (_LINE * (titles + above) + 0.7 + (0.5 if above else 0.0)) * layout.size
    body = (_ROW * len(table.rows) + 0.4) * layout.size
    height = 2 * MARGIN + head + body + _LINE * SMALL * len(notes) + (0.5 * SMALL if notes else 0)
    figure = Figure(figsize=(width / POINTS_PER_INCH, height / POINTS_PER_INCH))
    FigureCanvasAgg(figure)
    pen = _Pen(figure, width, height, layout)
    pen.rule(0, _HEAVY)
    pen.headings(above, titles)
    pen.rule(head, _LIGHT)
    for number, row in enumerate(table.rows):
        pen.row(row, [heading.numbers for heading in table.headings], head + (_ROW * number + 1.25) * layout.size)
    pen.rule(head + body, _HEAVY)
    for number, line in enumerate(notes):
        pen.text(line, 0, head + body + (1.4 + _LINE * number) * SMALL, "left", size=SMALL, color=GREY)
    return figure


class _Pen:
    """Draws on a figure in points, within its margins from the top left corner downwards."""

    def __init__(self, figure: Figure, width: float, height: float, layout: Layout) -> None:
        self.figure, self.width, self.height, self.layout = figure, width, height, layout

    def headings(self, above: int, titles: int) -> None:
        """Headings of groups in `above` lines, then those of the columns, each ending with the last of `titles`."""
        size, columns = self.layout.size, self.layout.columns
        for group in self.layout.groups:
            left = columns[group.first].left
            right = columns[group.last].left + columns[group.last].width
            for number, line in enumerate(reversed(group.heading)):
                self.text(line, (left + right) / 2, (0.2 + _LINE * (above - number)) * size, "center")
            self.rule((0.55 + _LINE * above) * size, _HAIR, left, right)
        shift = 0.5 if above else 0.0
        for index, column in enumerate(columns):
            for number, line in enumerate(reversed(column.heading)):
                y = (0.2 + shift + _LINE * (above + titles - number)) * size
                if index:
                    self.text(line, column.left + column.width / 2, y, "center")
                else:
                    self.text(line, column.left, y, "left")

    def row(self, cells: tuple[Cell, ...], numbers: list[bool], y: float) -> None:
        """The cells of a row on the same line; numbers meet at their decimal points, words are centred among them."""
        for cell, column, is_number in zip(cells, self.layout.columns, numbers, strict=True):
            weight = "bold" if cell.best else "normal"
            width = width_of(cell.text, self.layout.size, bold=cell.best)
            if is_number and cell.parts:
                self.text(cell.parts[0], column.point, y, "right", weight=weight)
                self.text(cell.parts[1], column.point, y, "left", weight=weight)
                end = column.point + width_of(cell.parts[1], self.layout.size, bold=cell.best)
            else:
                start = column.left + (column.width - width) / 2 if is_number else column.left
                self.text(cell.text, start, y, "left", weight=weight)
                end = start + width
            self.text(cell.mark, end + 0.5, y - 0.36 * self.layout.size, "left", size=MARK * self.layout.size)

    def rule(self, y: float, width: float, left: float = 0.0, right: float | None = None) -> None:
        ends = [MARGIN + left, MARGIN + right if right is not None else self.width - MARGIN]
        level = 1 - (MARGIN + y) / self.height
        xs = [end / self.width for end in ends]
        self.figure.add_artist(Line2D(xs, [level, level], color="black", linewidth=width))

    def text(self, text: str, x: float, y: float, side: str, **look: Any) -> None:
        if text:
            look = {"size": self.layout.size} | look | {"ha": side, "va": "baseline", "parse_math": has_symbols(text)}
            self.figure.text((MARGIN + x) / self.width, 1 - (MARGIN + y) / self.height, drawn(text), **look)
