"""The common form of all formats: rows in our columns and units, and one-line errors."""

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from resync.base import files
from resync.base.errors import UserError
from resync.runs.metrics.registry import METRICS

Values = dict[str, float]
"""The values of one step by our column name; a column that the log does not have is absent, never filled in."""


class LogError(UserError):
    """A log that cannot be imported; the message is one line with file, line, column, found and allowed values."""


@dataclass(frozen=True)
class ImportedLog:
    """Rows of metrics.csv and of steps.csv with increasing steps; values that the log does not have are absent.

    `notes` says in a sentence each what of the log does not count, and why.
    """

    metrics: list[Values]
    steps: list[Values]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Origin:
    """Origin of a log: a file or a run on a server, the SHA-256 of the content read, and its run if it has several."""

    name: str
    sha256: str
    run: str | None = None

    @classmethod
    def of(cls, name: str, content: bytes, run: str | None = None) -> "Origin":
        return cls(name, hashlib.sha256(content).hexdigest(), run)


def read_bytes(file: Path) -> bytes:
    """The content of a log file. Raises LogError."""
    try:
        return files.read_bytes(file)
    except UserError as error:
        raise LogError(str(error)) from None
    except OSError as error:
        raise LogError(f"{file}: {error.strerror}") from None


def read_text(file: Path) -> str:
    """The text of a log file, with line feeds as line ends. Raises LogError."""
    try:
        return files.text_of(read_bytes(file)).replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise LogError(f"{file}: not text, allowed: CSV in UTF-8") from None


def require_possible(rows: Iterable[tuple[str, Values]], sources: Mapping[str, str] | None = None) -> None:
    """Raise LogError for a value that its metric cannot have, or for a total that falls from one row to a later one.

    `rows` are the rows of a table with their places; `sources` has the log's column by metric, where it has one.
    """
    totals: Values = {}
    for place, row in rows:
        for name, value in row.items():
            metric, source = METRICS[name], (sources or {}).get(name)
            where = f"{place}: column {source!r} as {name}" if source else f"{place}: {name}"
            unit = "" if metric.unit == "1" else f" {metric.unit}"
            if not metric.has(value):
                raise LogError(f"{where}: found {value:g}{unit}, allowed: {metric.allowed}")
            if metric.grows and not math.isnan(value):
                if value < (before := totals.get(name, value)):
                    raise LogError(f"{where}: found {value:g}{unit} after {before:g}, allowed: no less, since step 0")
                totals[name] = value


def same(one: float, other: float) -> bool:
    """Whether two values are equal, as NaN is to itself here."""
    return one == other or (math.isnan(one) and math.isnan(other))


def again(step: float) -> str:
    """The note on a log in which a later job has taken steps again, the first of them this one."""
    return f"steps from {step:g} on were logged again: the values of the later job count"


def to_number(text: str, place: str, column: str) -> float:
    """The number in a cell, which may be NaN or infinite. Raises LogError that names the cell."""
    try:
        if text.isascii() and "_" not in text:  # others are numbers in Python only
            return float(text)
    except ValueError:
        pass
    raise LogError(f"{place}: column {column!r}: found {text!r:.60}, allowed: a number")


def to_count(value: float, place: str, column: str) -> int:
    """A non-negative integer. Raises LogError that names the cell."""
    if not (0 <= value < 2**63 and value == int(value)):
        raise LogError(f"{place}: column {column!r}: found {value:g}, allowed: an integer >= 0")
    return int(value)
