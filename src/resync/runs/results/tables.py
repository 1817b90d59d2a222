"""Strict reading of metrics.csv and steps.csv: numbers are read exactly as written, or the file is rejected."""

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from resync.base.files import read_bytes
from resync.runs.metrics.registry import METRICS, File, columns, required_columns
from resync.runs.results.errors import ResultsError
from resync.runs.results.summary import digest, require_unchanged

Columns = dict[str, NDArray[Any]]
"""The columns of a table by name, of int64, or of float64, in which a missing value is NaN."""

_EXACT = 2**53
"""Up to here float64 has every integer."""


def read_table(path: Path, whole: tuple[str, ...], summary: Mapping[str, Any]) -> Columns:
    """A CSV file of numbers with all required and no unknown columns, complete lines and strictly increasing steps.

    The columns in `whole` hold integers, and all only values that their metrics can have; the summary has the digest
    of the file. Raises ResultsError.
    """
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        raise ResultsError(f"{path}: missing, although summary.json says that the run ended") from None
    table = _parsed(path, content, whole)
    require_unchanged(path, digest(content), summary)  # after the others, which know what is wrong
    for name in _doubtful(table):
        _require_possible(path, name, table[name])
    return table


def _parsed(path: Path, content: bytes, whole: tuple[str, ...]) -> Columns:
    """The table in the content of a CSV file, as `read_table` reads it."""
    file: File = "steps" if path.stem == "steps" else "metrics"
    if not content and file == "steps":  # the run ended before its first sampled step
        return {name: np.array([], np.float64) for name in required_columns(file)}
    header = _header(path, content, file)
    lines = content.replace(b"\r\n", b"\n").split(b"\n")[1:-1]
    for number, line in enumerate(lines, start=2):
        if line.count(b",") != len(header) - 1:
            found = f"found {1 + line.count(b',')} numbers, allowed: {len(header)}"
            raise ResultsError(f"{path}:{number}: {found}: half-written or damaged?")
    cells = b",".join(lines).split(b",") if lines else []
    try:
        numbers = _floats(cells).reshape(-1, len(header))
        columns: Columns = dict(zip(header, numbers.T.copy(), strict=True))
        columns |= {name: _integers(cells[header.index(name) :: len(header)]) for name in whole}
    except (ValueError, OverflowError):
        raise ResultsError(f"{path}{_first_wrong(cells, header, whole)}: half-written or damaged?") from None
    if (np.diff(columns["step"]) <= 0).any():
        raise ResultsError(f"{path}: steps do not increase from line to line")
    return columns


def _floats(cells: Sequence[bytes]) -> NDArray[np.float64]:
    """Numbers, NaN for an empty cell, by Arrow, which takes a fifth of the time of `float`. Raises ValueError."""
    known = [cell or b"nan" for cell in cells]
    ends = np.cumsum([0, *map(len, known)], dtype=np.int32)
    # `pa.array` and `to_numpy` would import pandas.
    texts = pa.Array.from_buffers(pa.string(), len(known), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(known))])
    return np.asarray(np.from_dlpack(texts.cast(pa.float64())), np.float64)


def _integers(cells: Sequence[bytes]) -> NDArray[np.int64]:
    """Raises ValueError for other texts, and OverflowError."""
    if not all(map(bytes.isdigit, cells)):
        raise ValueError
    return np.array([*map(int, cells)], np.int64)


def _first_wrong(cells: Sequence[bytes], header: tuple[str, ...], whole: tuple[str, ...]) -> str:
    """The place of the first cell that is no number, what was found and what is allowed."""
    for number, cell in enumerate(cells):
        line, place = divmod(number, len(header))
        read, allowed = (_integers, "an integer") if header[place] in whole else (_floats, "a number")
        try:
            read([cell])
        except (ValueError, OverflowError):
            return f":{line + 2}: {header[place]}: found {cell.decode()!r:.60}, allowed: {allowed}"
    raise AssertionError("all cells are numbers")


def _doubtful(table: Columns) -> list[str]:
    """The columns that need the look of `_require_possible`, by one at all of them: of a good table mostly none."""
    least, most, grows = _ranges(tuple(table))
    values = np.array([*table.values()], np.float64)
    doubtful = np.asarray(((values < least) | (values > most)).any(axis=1))
    doubtful[grows] |= (~(values[grows, 1:] >= values[grows, :-1])).any(axis=1)  # also where a NaN is between
    return [name for name, is_doubtful in zip(table, doubtful.tolist(), strict=True) if is_doubtful]


@lru_cache
def _ranges(names: tuple[str, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Bounds [columns, 1] of values that are surely possible, and which columns never fall."""
    metrics = [METRICS[name] for name in names]
    finite = [sys.float_info.max if metric.grows else np.inf for metric in metrics]
    least = [max(metric.least, -end) for metric, end in zip(metrics, finite, strict=True)]
    most = [min(metric.most, end, _EXACT if metric.whole else end) for metric, end in zip(metrics, finite, strict=True)]
    return np.array([least]).T, np.array([most]).T, np.array([metric.grows for metric in metrics])


def _require_possible(path: Path, name: str, values: NDArray[Any]) -> None:
    """Raise ResultsError for a value that the metric cannot have, or a total that falls from a line to the next."""
    metric = METRICS[name]
    extremes = [np.fmin.reduce(values), np.fmax.reduce(values)] if len(values) else []
    wrong = [value for value in extremes if value == value and not metric.has(float(value))]
    if wrong:
        line = min(int(np.flatnonzero(values == value)[0]) for value in wrong)
        raise ResultsError(f"{path}:{line + 2}: {name}: found {values[line]:g}, allowed: {metric.allowed}")
    if not metric.grows:
        return
    known = np.flatnonzero(~np.isnan(values))
    if (falls := np.flatnonzero(np.diff(values[known]) < 0)).size:
        line = known[falls[0] + 1]
        raise ResultsError(f"{path}:{line + 2}: {name}: found {values[line]:g} after a larger value, allowed: no less")


def _header(path: Path, content: bytes, file: File) -> tuple[str, ...]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ResultsError(f"{path}: not text: damaged") from None
    if not text.endswith("\n"):
        raise ResultsError(f"{path}: the last line is not terminated: half-written")
    header = tuple(text[: text.index("\n")].rstrip("\r").split(","))
    if problem := _problem_of(header, file):
        raise ResultsError(f"{path}: {problem}")
    return header


@lru_cache
def _problem_of(header: tuple[str, ...], file: File) -> str:
    """What is wrong with the columns of a file; empty if nothing is."""
    known = columns(file)
    if unknown := [name for name in header if name not in known]:
        return f"not a file of resync, it has a column {unknown[0]!r:.60}"
    if absent := [name for name in required_columns(file) if name not in header]:
        return f"the column {', '.join(absent)} is missing"
    return f"a column appears twice: {', '.join(header)}" if len(set(header)) < len(header) else ""


@lru_cache
def whole_columns(imported: bool) -> tuple[str, ...]:
    """The columns that hold integers; a third-party log may lack the number of rounds."""
    whole = [name for name in columns("metrics") if METRICS[name].whole]
    return ("step",) if imported else tuple(whole)
