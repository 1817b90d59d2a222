"""Export of all numbers of a paper's runs as one tidy table.

Nothing in this package reads the table: it is for other programs. Figures need only their own runs, and audits need
more of a run than its numbers; both read the runs' files (`resync.results.runs`).
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from resync.files import replacing
from resync.results.runs import RunResult, RunState, state_of
from resync.run import Run

_TEXTS = ("paper", "scale", "experiment", "series", "label")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        ("seed", pa.int64()),
        ("status", pa.string()),
        ("config_hash", pa.string()),
        ("record", pa.string()),
        ("step", pa.int64()),
        ("epoch", pa.float64()),
        ("metric", pa.string()),
        ("value", pa.float64()),
    ]
)
_ROWS_AT_A_TIME = 1 << 18


@dataclass
class Collected:
    """The files of an export, and the runs that have no rows in it: one line per run."""

    parquet: Path
    csv: Path
    missing: list[str]
    damaged: list[str]


def collect(runs: Iterable[Run], results: Path, stem: Path) -> Collected:
    """Write the long tidy table of `runs` as `stem`.parquet and `stem`.csv, each complete or not at all.

    It has one row per value, in the order of the runs; NaN values are kept. Only a part of it is in memory at a time.
    """
    found = Collected(Path(f"{stem}.parquet"), Path(f"{stem}.csv"), [], [])
    with ExitStack() as stack:
        binary, text = (stack.enter_context(replacing(path)) for path in (found.parquet, found.csv))
        columns = stack.enter_context(parquet.ParquetWriter(binary, _SCHEMA))
        lines = stack.enter_context(csv.CSVWriter(text, _SCHEMA))
        for table in _in_parts(_tables(runs, results, found)):
            columns.write_table(table)
            lines.write_table(table)
    return found


def _tables(runs: Iterable[Run], results: Path, found: Collected) -> Iterator[pa.Table]:
    """The rows of each run; runs without results are noted in `found`."""
    for run in runs:
        state = state_of(run, results)
        if state.status == "damaged":
            found.damaged.append(f"{run.id} ({run.scale}): damaged: {state.reason}")
        elif state.result is None:
            found.missing.append(f"{run.id} ({run.scale}): {state.status}: {state.reason}")
        else:
            yield _rows(state, state.result)


def _in_parts(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of some hundred thousand."""
    part: list[pa.Table] = []
    for table in tables:
        part.append(table)
        if sum(each.num_rows for each in part) >= _ROWS_AT_A_TIME:
            yield pa.concat_tables(part)
            part = []
    if part:
        yield pa.concat_tables(part)


def _rows(state: RunState, result: RunResult) -> pa.Table:
    names, values = zip(*result.final_values(), strict=True)
    last = result.evaluations.slice(result.evaluations.num_rows - 1)
    summary = last.select(["step", "epoch"])
    for name, value in zip(names, values, strict=True):
        summary = summary.append_column(name, pa.array([value], pa.float64()))
    parts = [
        _melted(table, record)
        for table, record in ((result.evaluations, "evaluation"), (result.sampled, "step"), (summary, "summary"))
    ]
    table, run = pa.concat_tables(parts), state.run
    keys = {name: getattr(run, name) for name in (*_TEXTS, "seed")}
    keys |= {"status": state.status, "config_hash": result.summary["config_hash"]}
    columns = [pa.repeat(pa.scalar(value, _SCHEMA.field(key).type), table.num_rows) for key, value in keys.items()]
    return pa.Table.from_arrays([*columns, *table.columns], schema=_SCHEMA)


def _melted(table: pa.Table, record: str) -> pa.Table:
    """One row per value of a table, column by column."""
    rows, names = table.num_rows, [name for name in table.column_names if name not in ("step", "epoch")]
    values = np.concatenate([table[name].to_numpy().astype(float, copy=False) for name in names])
    return pa.table({
        "record": pa.repeat(record, len(values)),
        "step": np.tile(table["step"].to_numpy().astype(np.int64, copy=False), len(names)),
        "epoch": np.tile(table["epoch"].to_numpy().astype(float, copy=False), len(names)),
        "metric": pa.array(names).take(pa.array(np.repeat(np.arange(len(names)), rows))),
        "value": values,
    })  # fmt: skip
