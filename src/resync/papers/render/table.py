"""Tables: formatted cells, in Markdown, and the plain numbers of the same rows, as CSV. `table_tex` sets them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from resync.base.text_tables import csv_text, markdown_text, pipe_table

_NUMBER = re.compile(r"([+-]?\d(?:[\d,]*\d)?)((?:\D.*)?)", re.DOTALL)


@dataclass(frozen=True)
class Heading:
    """The heading of a column, and the common one of neighbouring columns above it.

    Columns of numbers are aligned at the decimal point, others to the left.
    """

    title: str
    unit: str = ""
    group: str = ""
    numbers: bool = True

    @property
    def own(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def text(self) -> str:
        """All of the heading in one line: `Training time (h), published`."""
        return ", ".join(filter(None, (self.group, self.own)))


@dataclass(frozen=True)
class Cell:
    """A formatted text; `best` is set in bold, `mark` stands raised behind it and is explained in the note."""

    text: str
    best: bool = False
    mark: str = ""

    @property
    def parts(self) -> tuple[str, str] | None:
        """A number as what is before and from the decimal point on; None for words."""
        match = _NUMBER.fullmatch(self.text)
        return (match[1].replace("-", "\N{MINUS SIGN}"), match[2]) if match else None

    @property
    def markdown(self) -> str:
        text = markdown_text(self.text)
        return (f"**{text}**" if self.best else text) + (f"<sup>{markdown_text(self.mark)}</sup>" if self.mark else "")


@dataclass(frozen=True)
class Table:
    """A table: `rows` are formatted cells, `records` the plain numbers of the same rows, `note` their setting."""

    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    records: tuple[Mapping[str, Any], ...]
    note: str
    caption: str = ""

    def markdown(self) -> str:
        align = "".join("c" if heading.numbers else "l" for heading in self.headings)
        headings = [markdown_text(heading.text) for heading in self.headings]
        table = "\n".join(pipe_table(headings, [[cell.markdown for cell in row] for row in self.rows], align))
        below = [markdown_text(text) for text in (self.caption, self.note) if text]
        return "\n\n".join([f"**{markdown_text(self.title)}**", table, *below]) + "\n"

    def csv(self) -> str:
        return csv_text(self.records, list(self.records[0]))
