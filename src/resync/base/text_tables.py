"""Numbers as text: CSV and JSON for programs, aligned columns for a terminal, Markdown for pages."""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_MARKS = re.compile(r"[\\`*$|]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|](?=[(\[])|~(?=~)|(?<!\w)_|_(?!\w)")
"""What has a meaning in Markdown; an underscore has none within a word."""
_ESCAPED = re.compile(r"\\([\\`*$|<&\]~_])")
_BARS = re.compile(r"(?<!\\)\|")


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], header: bool = True) -> str:
    """Rows as CSV; numbers round-trip to the same bits, missing values and None are empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def json_text(content: Any, indent: int = 2) -> str:
    """JSON that every parser reads: NaN and infinite numbers, for which it has no form, are null."""
    return json.dumps(_finite(content), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return content


def aligned(lines: Sequence[Sequence[str]], right: bool = True) -> list[str]:
    """Lines with aligned columns: the first to the left, the others to the right, or also to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    adjust = str.rjust if right else str.ljust
    return ["  ".join([name.ljust(widths[0]), *map(adjust, cells, widths[1:])]).rstrip() for name, *cells in lines]


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> list[str]:
    """The lines of a pipe table of plain texts; `align` has l, c or r for each column."""
    return pipe_table(list(map(markdown_text, headings)), [list(map(markdown_text, row)) for row in rows], align)


def pipe_table(headings: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> list[str]:
    """The lines of a pipe table whose cells are Markdown."""
    marks = {"l": ":--", "c": ":-:", "r": "--:"}
    return ["| " + " | ".join(line) + " |" for line in (headings, [marks[letter] for letter in align], *rows)]


def markdown_text(text: str) -> str:
    """Plain text as Markdown in one line: what would be a mark-up, an HTML tag, mathematics or a column is escaped."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split()))


def markdown_cells(line: str) -> list[str]:
    """The cells of a line of `markdown`, still with the marks of Markdown."""
    return [cell.strip() for cell in _BARS.split(line.strip().removeprefix("|").removesuffix("|"))]


def plain_text(marked: str) -> str:
    """The text from which `markdown_text` made a line."""
    return _ESCAPED.sub(r"\1", marked)


def one_line(text: str, limit: int = 500) -> str:
    """The text in one line of at most `limit` characters, all of them printable: it may be from a damaged file."""
    line = " ".join("".join(letter if letter.isprintable() or letter.isspace() else "?" for letter in text).split())
    return line if len(line) <= limit else f"{line[:limit]}..."
