"""The common form of all formats: rows in our columns and units, and one-line errors."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from resync import files
from resync.errors import UserError

Values = dict[str, float]
"""The values of one step by our column name; a column that the log does not have is absent, never filled in."""


class LogError(UserError):
    """A log that cannot be imported; the message is one line with file, line, column, found and allowed values."""


@dataclass(frozen=True)
class ImportedLog:
    """Rows of metrics.csv and of steps.csv with increasing steps; values that the log does not have are absent."""

    metrics: list[Values]
    steps: list[Values]


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
        return read_bytes(file).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise LogError(f"{file}: not text, allowed: CSV in UTF-8") from None


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
