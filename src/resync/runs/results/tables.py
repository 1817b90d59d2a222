"""Strict reading of metrics.csv and steps.csv: numbers are read exactly as written, or the file is rejected."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from resync.base.files import read_bytes
from resync.runs.metrics.registry import METRICS, File, columns, required_columns
from resync.runs.results.errors import ResultsError
from resync.runs.results.summary import digest, require_unchanged

if TYPE_CHECKING:
    import pandas as pd


def read_table(path: Path, whole: Iterable[str], summary: Mapping[str, Any]) -> "pd.DataFrame":
    """A CSV file of numbers with all required and no unknown columns, complete lines and strictly increasing steps.

    The columns in `whole` hold integers, and all only values that their metrics can have; the summary has the digest
    of the file. Raises ResultsError.
    """
    if not path.exists():
        raise ResultsError(f"{path}: missing, although summary.json says that the run ended")
    content = read_bytes(path)
    table = _parsed(path, content, whole)
    require_unchanged(path, digest(content), summary)  # after the others, which know what is wrong
    for name, column in zip(table.column_names, table.columns, strict=True):
        _require_possible(path, name, column.to_numpy())
    return table.to_pandas(use_threads=False)


def _parsed(path: Path, content: bytes, whole: Iterable[str]) -> pa.Table:
    """The table in the content of a CSV file, as `read_table` reads it."""
    file: File = "steps" if path.stem == "steps" else "metrics"
    if not content and file == "steps":  # the run ended before its first sampled step
        return pa.table({name: pa.array([], pa.float64()) for name in required_columns(file)})
    header = _header(path, content, file)
    types = {name: pa.int64() if name in whole else pa.float64() for name in header}
    try:
        table = csv.read_csv(
            pa.BufferReader(content),
            # With several threads, errors name no line. A buffer of 1 MB takes longer to get than to fill.
            read_options=csv.ReadOptions(use_threads=False, block_size=len(content)),
            parse_options=csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(column_types=types, null_values=[""]),
        )
    except pa.ArrowInvalid as error:
        raise ResultsError(f"{path}: {error}: half-written or damaged?") from None
    if any(table[name].null_count for name in whole):
        raise ResultsError(f"{path}: an empty {' or '.join(whole)}, allowed: an integer")
    if (np.diff(table["step"].to_numpy()) <= 0).any():
        raise ResultsError(f"{path}: steps do not increase from line to line")
    return table


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


def _header(path: Path, content: bytes, file: File) -> list[str]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ResultsError(f"{path}: not text: damaged") from None
    if not text.endswith("\n"):
        raise ResultsError(f"{path}: the last line is not terminated: half-written")
    header = text[: text.index("\n")].rstrip("\r").split(",")
    known = columns(file)
    if unknown := [name for name in header if name not in known]:
        raise ResultsError(f"{path}: not a file of resync, it has a column {unknown[0]!r:.60}")
    if absent := [name for name in required_columns(file) if name not in header]:
        raise ResultsError(f"{path}: the column {', '.join(absent)} is missing")
    if len(set(header)) < len(header):
        raise ResultsError(f"{path}: a column appears twice: {', '.join(header)}")
    return header


def whole_columns(imported: bool) -> tuple[str, ...]:
    """The columns that hold integers; a third-party log may lack the number of rounds."""
    whole = [name for name in columns("metrics") if METRICS[name].whole]
    return ("step",) if imported else tuple(whole)
