r"""A table in LaTeX: a float with caption, label and note, for `\input` in a document that loads booktabs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from textwrap import wrap

from resync.render.style import COLUMN
from resync.render.table import Cell, Heading, Table
from resync.render.text import with_symbols

_ESCAPED = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "∞": r"$\infty$",
    "²": r"\textsuperscript{2}",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "¶": r"\P{}",
    "§": r"\S{}",
    "\N{MINUS SIGN}": "$-$",
    "\N{EN DASH}": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
_SIZES = (("small", 9), ("footnotesize", 8), ("scriptsize", 7))
_HALF_GAPS = (6.0, 4.0, 2.5)
"""Half the distances between columns that are tried, in points."""
_CHARACTER = 0.55
"""The width of a character of a table, in the size of the text; a bold digit is wider, most letters are narrower."""
_POINTS_PER_INCH = 72.27
_BETWEEN = 2
"""The least distance of columns in characters."""


@dataclass(frozen=True)
class _Head:
    """The headings in lines: of each column, and of groups with their first and last column; widths in characters."""

    columns: tuple[list[str], ...]
    groups: tuple[tuple[list[str], int, int], ...]
    widths: tuple[int, ...]


def tex(table: Table, width: float, label: str) -> str:
    """The float for `width` inches: `table` for a column, `table*` across both columns of a page.

    Text is as large, and columns are as far apart, as fits.
    """
    kind = "table" if width <= COLUMN else "table*"
    head, size, gap = _fitted(table, width)
    caption = " ".join(f"{part.rstrip('.')}." for part in (table.title, table.caption) if part)
    return "\n".join([
        r"% needs \usepackage{booktabs}",
        rf"\begin{{{kind}}}",
        r"\centering",
        rf"\caption{{{escaped(caption)}}}",
        *([rf"\label{{tab:{label}}}"] if label else []),
        rf"\{size}",
        rf"\setlength{{\tabcolsep}}{{{gap:g}pt}}",
        rf"\begin{{tabular}}{{@{{}}{''.join('r@{}l' if each.numbers else 'l' for each in table.headings)}@{{}}}}",
        r"\toprule",
        *_headings(table.headings, head),
        r"\midrule",
        *(_row([_body(cell, each) for cell, each in zip(row, table.headings, strict=True)]) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\par\smallskip\parbox{{\linewidth}}{{\footnotesize {escaped(table.note)}}}",
        rf"\end{{{kind}}}",
        "",
    ])  # fmt: skip


def escaped(text: str) -> str:
    """A text in one line, in which no character has a meaning for LaTeX, but symbols are mathematics."""
    line = " ".join(text.split())
    return with_symbols(line, lambda part: "".join(_ESCAPED.get(letter, letter) for letter in part))


def _fitted(table: Table, width: float) -> tuple[_Head, str, float]:
    """The first that fits: headings in one line, then in several, with smaller text, and narrower gaps."""
    broken = ((_head(table, broken=True), size, gap) for size in _SIZES for gap in _HALF_GAPS)
    for head, (name, points), gap in chain([(_head(table, broken=False), _SIZES[0], _HALF_GAPS[0])], broken):
        found = head, name, gap
        if sum(head.widths) * _CHARACTER * points + 2 * gap * (len(head.widths) - 1) <= width * _POINTS_PER_INCH:
            break
    return found


def _head(table: Table, broken: bool) -> _Head:

    def least(title: str) -> int:
        return max(map(len, title.split() if broken else [title]), default=0)

    widths = [
        max(_width([row[index] for row in table.rows], heading), least(heading.own))
        for index, heading in enumerate(table.headings)
    ]
    spans = []
    for title, members in groupby(range(len(widths)), key=lambda index: table.headings[index].group):
        first, *_ = found = list(members)
        if title:
            while (span := sum(widths[index] + _BETWEEN for index in found) - _BETWEEN) < least(title):
                widths[min(found, key=widths.__getitem__)] += 1
            spans.append((wrap(title, span, break_long_words=False), first, found[-1]))
    columns = tuple(
        wrap(heading.own, width, break_long_words=False) for heading, width in zip(table.headings, widths, strict=True)
    )
    return _Head(columns, tuple(spans), tuple(widths))


def _width(cells: Sequence[Cell], heading: Heading) -> int:
    before = behind = words = 0
    for cell in cells:
        if heading.numbers and cell.parts:
            before, behind = max(before, len(cell.parts[0])), max(behind, len(cell.parts[1] + cell.mark))
        else:
            words = max(words, len(cell.text + cell.mark))
    return max(before + behind, words)


def _headings(headings: tuple[Heading, ...], head: _Head) -> list[str]:
    spans = [2 if heading.numbers else 1 for heading in headings]
    firsts = [1 + sum(spans[:index]) for index in range(len(spans))]
    lines = []
    above = max((len(title) for title, _, _ in head.groups), default=0)
    for number in range(above):
        cells, index = [], 0
        for title, first, last in head.groups:
            cells += [" " + "&" * (span - 1) for span in spans[index:first]]
            cells.append(_spanning(_lowered(title, above)[number], sum(spans[first : last + 1])))
            index = last + 1
        cells += [" " + "&" * (span - 1) for span in spans[index:]]
        lines.append(_row(cells))
    if above:
        rules = (
            rf"\cmidrule(lr){{{firsts[first]}-{firsts[last] + spans[last] - 1}}}" for _, first, last in head.groups
        )
        lines.append("".join(rules))
    titles = max(map(len, head.columns))
    for number in range(titles):
        texts = [_lowered(column, titles)[number] for column in head.columns]
        cells = [_spanning(text, span) if span > 1 else escaped(text) for text, span in zip(texts, spans, strict=True)]
        lines.append(_row(cells))
    return lines


def _lowered(lines: list[str], count: int) -> list[str]:
    return [*[""] * (count - len(lines)), *lines]


def _body(cell: Cell, heading: Heading) -> str:
    """A cell; the two columns of a number meet at its decimal point."""

    def bold(text: str) -> str:
        return rf"\textbf{{{escaped(text)}}}" if cell.best and text else escaped(text)

    mark = rf"\textsuperscript{{{escaped(cell.mark)}}}" if cell.mark else ""
    if not heading.numbers:
        return bold(cell.text) + mark
    if cell.parts is None:
        return rf"\multicolumn{{2}}{{c}}{{{bold(cell.text)}{mark}}}"
    before, behind = cell.parts
    space = r"\ " if behind.startswith(" ") else ""  # LaTeX ignores a space that begins a cell
    return f"{bold(before)} & {space}{bold(behind)}{mark}"


def _spanning(text: str, columns: int) -> str:
    return rf"\multicolumn{{{columns}}}{{c}}{{{escaped(text)}}}"


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
