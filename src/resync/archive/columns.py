"""A CSV table of numbers as columns, from which its text comes back to the byte.

A column is written throughout as Python writes integers, or throughout as it writes floats, where `nan` is a value and
an empty cell is none.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_EXACT_IN_FLOAT = 2**53

Number = int | float | None


@dataclass(frozen=True)
class Columns:
    """The columns of a table by name, in their order, and the names of those that are written as integers."""

    values: dict[str, Sequence[Number]]
    whole: frozenset[str]

    @property
    def rows(self) -> int:
        return len(next(iter(self.values.values()), ()))

    def text(self) -> str:
        """The CSV file; empty without columns."""
        if not self.values:
            return ""
        written = [map(_writer(name in self.whole), values) for name, values in self.values.items()]
        return "\n".join([",".join(self.values), *map(",".join, zip(*written, strict=True)), ""])


def columns_of(text: str) -> Columns | None:
    """The columns of a CSV file; None if its text would not come back, as with numbers that others have formatted."""
    if not text:
        return Columns({}, frozenset())
    header, *lines = text.removesuffix("\n").split("\n")
    names, rows = header.split(","), [line.split(",") for line in lines]
    if any(len(row) != len(names) for row in rows):
        return None
    found: dict[str, Sequence[Number]] = {}
    whole = set()
    for index, name in enumerate(names):
        cells = [row[index] for row in rows]
        if cells and all(map(_INTEGER.fullmatch, cells)):
            whole.add(name)
            found[name] = [int(cell) for cell in cells]
        else:
            try:
                found[name] = [float(cell) if cell else None for cell in cells]
            except ValueError:
                return None
    columns = Columns(found, frozenset(whole))
    inexact = any(abs(value or 0) > _EXACT_IN_FLOAT for name in whole for value in found[name])
    return None if inexact or columns.text() != text else columns


def _writer(whole: bool) -> Callable[[Number], str]:
    return _integer if whole else _float


def _integer(value: Number) -> str:
    assert value is not None
    return str(int(value))


def _float(value: Number) -> str:
    return "" if value is None else repr(float(value))
