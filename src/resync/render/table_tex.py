r"""A table in LaTeX: a float with caption, label and note, for `\input` in a document that loads booktabs."""

from resync.render.style import COLUMN
from resync.render.table import Cell, Heading, Table
from resync.render.table_layout import MARGIN, POINTS_PER_INCH, Layout
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
_SIZES = ((9, "small"), (8, "footnotesize"), (7, "scriptsize"))
_WIDER = 1.22
"""How much wider Computer Modern is than the font of our pictures."""
_HALF_GAPS = (6, 4, 2.5)
"""Half the distances between columns that are tried, in points."""


def tex(table: Table, layout: Layout, label: str) -> str:
    """The float: `table` for a column, `table*`, which spans both columns of a page, for the whole block of text."""
    kind = "table" if layout.available <= COLUMN * POINTS_PER_INCH else "table*"
    size, gap = _chosen(layout)
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
        *_head(table.headings, layout),
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


def _chosen(layout: Layout) -> tuple[str, float]:
    """The largest size of text, then the largest gap, with which the table should fit."""
    columns = sum(column.width for column in layout.columns) / layout.size * _WIDER
    for points, name in _SIZES:
        for gap in _HALF_GAPS:
            if columns * points + 2 * gap * (len(layout.columns) - 1) <= layout.available + 2 * MARGIN:
                return name, gap
    return _SIZES[-1][1], _HALF_GAPS[-1]


def _head(headings: tuple[Heading, ...], layout: Layout) -> list[str]:
    """The headings of groups with a rule below each, then those of the columns, broken as in the picture."""
    spans = [2 if heading.numbers else 1 for heading in headings]
    firsts = [1 + sum(spans[:index]) for index in range(len(spans))]
    lines = []
    above = max((len(group.heading) for group in layout.groups), default=0)
    for number in range(above):
        cells, index = [], 0
        for group in layout.groups:
            cells += [" " + "&" * (span - 1) for span in spans[index : group.first]]
            broken = (*[""] * (above - len(group.heading)), *group.heading)
            cells.append(_spanning(broken[number], sum(spans[group.first : group.last + 1])))
            index = group.last + 1
        cells += [" " + "&" * (span - 1) for span in spans[index:]]
        lines.append(_row(cells))
    if above:
        rules = (
            rf"\cmidrule(lr){{{firsts[group.first]}-{firsts[group.last] + spans[group.last] - 1}}}"
            for group in layout.groups
        )
        lines.append("".join(rules))
    titles = max(len(column.heading) for column in layout.columns)
    for number in range(titles):
        cells = []
        for column, span in zip(layout.columns, spans, strict=True):
            text = (*[""] * (titles - len(column.heading)), *column.heading)[number]
            cells.append(_spanning(text, span) if span > 1 else escaped(text))
        lines.append(_row(cells))
    return lines


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
