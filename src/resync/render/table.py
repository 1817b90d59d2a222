"""Tables: the same cells as Markdown, LaTeX (booktabs), PDF and PNG, and their plain numbers as CSV."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from resync.render.style import GREY, encode
from resync.text_tables import csv_text, markdown, markdown_text

POINTS_PER_INCH = 72
_MEASURING_DPI = 600  # text is hinted to whole pixels, so that its width is inaccurate at a low resolution
_FONT, _SMALL = 9.0, 6.5
_GAP, _ROW, _MARGIN = 16.0, 14.5, 6.0
_HEAVY, _LIGHT = 0.9, 0.5

_TEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "∞": r"$\infty$",
    "\N{EN DASH}": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


@dataclass(frozen=True)
class Heading:
    """The heading of a column, with its unit drawn below; `align` is l, c or r."""

    title: str
    unit: str = ""
    align: str = "c"

    @property
    def text(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True)
class Table:
    """A table: `rows` are formatted cells, `records` the plain numbers of the same rows, `note` their setting."""

    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[str, ...], ...]
    records: tuple[Mapping[str, Any], ...]
    note: str

    def encode(self) -> dict[str, bytes]:
        """The table in every format, by suffix."""
        texts = {".md": self.markdown(), ".tex": self.tex(), ".csv": self.csv()}
        return encode(self.draw()) | {suffix: text.encode() for suffix, text in texts.items()}

    def markdown(self) -> str:
        """A pipe table with its title above and its note below."""
        align = "".join(heading.align for heading in self.headings)
        table = "\n".join(markdown([heading.text for heading in self.headings], self.rows, align))
        return f"**{markdown_text(self.title)}**\n\n{table}\n\n{markdown_text(self.note)}\n"

    def tex(self) -> str:
        r"""A tabular for `\input`; needs the package booktabs."""
        head = _tex_row([heading.text for heading in self.headings])
        body = "\n".join(_tex_row(row) for row in self.rows)
        note = rf"\multicolumn{{{len(self.headings)}}}{{l}}{{\footnotesize {_tex(self.note)}}} \\"
        return "\n".join([
            f"% {' '.join(self.title.split())}: needs \\usepackage{{booktabs}}",
            rf"\begin{{tabular}}{{@{{}}{''.join(heading.align for heading in self.headings)}@{{}}}}",
            r"\toprule", head, r"\midrule", body, r"\bottomrule", note, r"\end{tabular}", "",
        ])  # fmt: skip

    def csv(self) -> str:
        """One line per row with plain numbers; unknown values are empty."""
        return csv_text(self.records, list(self.records[0]))

    def draw(self) -> Figure:
        """The table in the style of booktabs, as large as its cells require."""
        figure = Figure(dpi=_MEASURING_DPI)
        FigureCanvasAgg(figure)
        columns = [
            [heading.title, f"({heading.unit})", *(row[index] for row in self.rows)]
            for index, heading in enumerate(self.headings)
        ]
        widths = [max(_width(figure, text) for text in column) for column in columns]
        inner = max(sum(widths) + _GAP * (len(widths) - 1), _width(figure, self.note, _SMALL))
        height = 2 * _MARGIN + _ROW * (len(self.rows) + 3) + _ROW
        figure.set_size_inches((inner + 2 * _MARGIN) / POINTS_PER_INCH, height / POINTS_PER_INCH)
        _Pen(figure, inner + 2 * _MARGIN, height).table(self, widths)
        return figure


class _Pen:
    """Draws on a figure in points, from the top left corner downwards."""

    def __init__(self, figure: Figure, width: float, height: float):
        self.figure, self.width, self.height = figure, width, height

    def table(self, table: Table, widths: Sequence[float]) -> None:
        lefts = [_MARGIN + sum(widths[:index]) + _GAP * index for index in range(len(widths))]
        top, first = _MARGIN, _MARGIN + 2.4 * _ROW
        self.rule(top, _HEAVY)
        for heading, left, width in zip(table.headings, lefts, widths, strict=True):
            self.text(heading.title, left, width, top + 0.8 * _ROW, heading.align)
            if heading.unit:
                self.text(f"({heading.unit})", left, width, top + 1.65 * _ROW, heading.align)
        self.rule(first, _LIGHT)
        for number, row in enumerate(table.rows):
            y = first + (number + 0.75) * _ROW
            for cell, heading, left, width in zip(row, table.headings, lefts, widths, strict=True):
                self.text(cell, left, width, y, heading.align)
        bottom = first + (len(table.rows) + 0.4) * _ROW
        self.rule(bottom, _HEAVY)
        self.text(table.note, _MARGIN, 0, bottom + 0.8 * _ROW, "l", size=_SMALL, color=GREY)

    def rule(self, y: float, width: float) -> None:
        ends = _MARGIN / self.width, 1 - _MARGIN / self.width
        self.figure.add_artist(Line2D(ends, [1 - y / self.height] * 2, color="black", linewidth=width))

    def text(self, text: str, left: float, width: float, y: float, align: str, **look: Any) -> None:
        side = {"l": "left", "c": "center", "r": "right"}[align]
        x = left + {"l": 0.0, "c": width / 2, "r": width}[align]
        size = look.pop("size", _FONT)
        look |= {"ha": side, "va": "center", "size": size, "parse_math": False}
        self.figure.text(x / self.width, 1 - y / self.height, text, **look)


def _width(figure: Figure, text: str, size: float = _FONT) -> float:
    """The width of a text in points."""
    artist = figure.text(0, 0, text, size=size, parse_math=False)
    width = artist.get_window_extent().width / figure.dpi * POINTS_PER_INCH
    artist.remove()
    return float(width)


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in " ".join(text.split()))


def _tex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_tex, cells)) + r" \\"
