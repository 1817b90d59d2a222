r"""A table in LaTeX: a float with caption, label and note, for `\input` in a document that loads booktabs."""

from collections.abc import Sequence
from itertools import chain, groupby
from textwrap import wrap

from resync.papers.render.style import COLUMN
from resync.papers.render.table import Cell, Heading, Table
from resync.papers.render.text import with_symbols

_ESCAPED = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "∞": r"$\infty$",
    "²": r"\textsuperscript{2}",
    "ζ": r"$\zeta$",
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


def tex(table: Table, width: float, label: str) -> str:
    """The float for `width` inches: `table` for a column, `table*` across both columns of a page.

    Text is as large, and columns are as far apart, as fits.
    """
    kind = "table" if width <= COLUMN else "table*"
    widths, size, gap = _fitted(table, width)
    caption = " ".join(f"{part.rstrip('.')}." for part in (table.title, table.caption) if part)
    return "\n".join([
        r"% needs \usepackage{booktabs}",
        rf"\begin{{{kind}}}",
        r"\centering",
        rf"\caption{{{escaped(caption)}}}",
        *([rf"\label{{tab:{label}}}"] if label else []),
        rf"\{size}",
        rf"\setlength{{\tabcolsep}}{{{gap:g}pt}}",
        rf"\begin{{tabular}}{{@{{}}{''.join('r@{}l' if heading.numbers else 'l' for heading in table.headings)}@{{}}}}",
        r"\toprule",
        *_headings(table.headings, widths),
        r"\midrule",
        *(_row([_body(cell, column) for cell, column in zip(row, table.headings, strict=True)]) for row in table.rows),
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


def _fitted(table: Table, width: float) -> tuple[list[int], str, float]:
    """The first that fits: headings in one line, then in several, with smaller text, and narrower gaps."""
    broken = ((_widths(table, broken=True), size, gap) for size in _SIZES for gap in _HALF_GAPS)
    for widths, (name, points), gap in chain([(_widths(table, broken=False), _SIZES[0], _HALF_GAPS[0])], broken):
        fitting = widths, name, gap
        if sum(widths) * _CHARACTER * points + 2 * gap * (len(widths) - 1) <= width * _POINTS_PER_INCH:
            break
    return fitting


def _widths(table: Table, broken: bool) -> list[int]:
    """The characters of each column, whose headings may be `broken` into lines."""

    def least(title: str) -> int:
        return max(map(len, title.split() if broken else [title]), default=0)

    widths = [
        max(_width([row[index] for row in table.rows], heading), least(heading.own))
        for index, heading in enumerate(table.headings)
    ]
    for title, members in _groups(table.headings):
        while title and _span(widths, members) < least(title):
            widths[min(members, key=widths.__getitem__)] += 1
    return widths


def _groups(headings: Sequence[Heading]) -> list[tuple[str, list[int]]]:
    """The common headings, empty for columns without, and the numbers of the neighbouring columns below each."""
    groups = groupby(range(len(headings)), key=lambda index: headings[index].group)
    return [(title, list(members)) for title, members in groups]


def _span(widths: Sequence[int], members: Sequence[int]) -> int:
    return sum(widths[index] + _BETWEEN for index in members) - _BETWEEN


def _width(cells: Sequence[Cell], heading: Heading) -> int:
    before = behind = words = 0
    for cell in cells:
        if heading.numbers and cell.parts:
            before, behind = max(before, len(cell.parts[0])), max(behind, len(cell.parts[1] + cell.mark))
        else:
            words = max(words, len(cell.text + cell.mark))
    return max(before + behind, words)


def _headings(headings: Sequence[Heading], widths: Sequence[int]) -> list[str]:
    spans, groups, lines = [2 if heading.numbers else 1 for heading in headings], _groups(headings), []
    for texts in _lowered([title for title, _ in groups], [_span(widths, members) for _, members in groups]):
        cells = []
        for text, (title, members) in zip(texts, groups, strict=True):
            columns = [spans[index] for index in members]
            cells += [_spanning(text, sum(columns))] if title else [" " + "&" * (span - 1) for span in columns]
        lines.append(_row(cells))
    if lines:
        ends = [(1 + sum(spans[: members[0]]), sum(spans[: members[-1] + 1])) for title, members in groups if title]
        lines.append("".join(rf"\cmidrule(lr){{{first}-{last}}}" for first, last in ends))
    for texts in _lowered([heading.own for heading in headings], widths):
        lines.append(_row([_spanning(text, span) if span > 1 else escaped(text)
                           for text, span in zip(texts, spans, strict=True)]))  # fmt: skip
    return lines


def _lowered(titles: Sequence[str], widths: Sequence[int]) -> list[tuple[str, ...]]:
    """Titles broken to their widths, in rows of which the last one has the last line of each."""
    broken = [wrap(title, width, break_long_words=False) for title, width in zip(titles, widths, strict=True)]
    most = max(map(len, broken))
    return list(zip(*([""] * (most - len(lines)) + lines for lines in broken), strict=True))


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
