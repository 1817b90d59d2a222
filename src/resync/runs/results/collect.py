"""All numbers of a paper's runs as one tidy table, for other programs.

It is made of the same `RunResult` that figures, tables and audits read, which need more of a run than its numbers.
"""

import csv
import io
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from resync.base.files import replacing
from resync.runs.results.runs import RunResult, RunState, state_of
from resync.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

_TEXTS = ("paper", "scale", "experiment", "series", "label")
_NUMBERS = {"seed": pa.int64(), "step": pa.int64(), "epoch": pa.float64(), "value": pa.float64()}
_OF_RUN = (*_TEXTS, "seed", "status", "config_hash")
_COLUMNS = (*_OF_RUN, "record", "step", "epoch", "metric", "value")
_SCHEMA = pa.schema([(name, _NUMBERS.get(name, pa.string())) for name in _COLUMNS])


@dataclass
class Collected:
    """The files of an export, and the runs that have no rows in it: one line per run."""

    parquet: Path
    csv: Path
    missing: list[str]
    damaged: list[str]


def collect(runs: Iterable[Run], results: Path, stem: Path) -> Collected:
    """Write the long tidy table of `runs` as `stem`.parquet and `stem`.csv, each complete or not at all.

    It has one row per value, in the order of the runs; NaN values are kept. Only one run is in memory at a time.
    """
    collected = Collected(Path(f"{stem}.parquet"), Path(f"{stem}.csv"), [], [])
    with ExitStack() as stack:
        binary, text = (stack.enter_context(replacing(path)) for path in (collected.parquet, collected.csv))
        columns = stack.enter_context(parquet.ParquetWriter(binary, _SCHEMA))
        text.write((",".join(_COLUMNS) + "\n").encode())
        for run in runs:
            state = state_of(run, results)
            if state.result:
                rows = rows_of(state, state.result)
                columns.write_table(rows)
                text.write(_csv_of(rows).encode())
            else:
                of = collected.damaged if state.status == "damaged" else collected.missing
                of.append(f"{run.id} ({run.scale}): {state.status}: {state.reason}")
    return collected


class _Numbers(NamedTuple):
    """The numbers of a table, `values` [metrics, rows]."""

    record: str
    steps: NDArray[np.int64]
    epochs: NDArray[np.float64]
    metrics: list[str]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, record: str, table: "pd.DataFrame") -> "_Numbers":
        numbers = dict(zip(map(str, table), table.to_numpy(np.float64).T, strict=True))
        steps, epochs = (table[name].to_numpy() for name in ("step", "epoch"))
        del numbers["step"], numbers["epoch"]
        return cls(record, steps, epochs, list(numbers), np.array([*numbers.values()]))


def rows_of(state: RunState, result: RunResult) -> pa.Table:
    """The values of a run, a row each, metric by metric; null stands for NaN."""
    evaluations, final = _Numbers.of("evaluation", result.metrics), dict(result.final_values())
    at_the_end = evaluations.steps[-1:], evaluations.epochs[-1:], list(final), np.array([*final.values()])
    tables = [evaluations, _Numbers.of("step", result.steps), _Numbers("summary", *at_the_end)]
    tables = [table for table in tables if table.values.size]
    metrics = pa.array([metric for table in tables for metric in table.metrics])
    rows_of_metric = [len(table.steps) for table in tables for _ in table.metrics]
    columns = {
        "record": pa.concat_arrays([pa.repeat(table.record, table.values.size) for table in tables]),
        "step": np.concatenate([np.tile(table.steps, len(table.metrics)) for table in tables]),
        "epoch": np.concatenate([np.tile(table.epochs, len(table.metrics)) for table in tables]),
        "metric": metrics.take(np.repeat(np.arange(len(metrics)), rows_of_metric)),
        "value": np.concatenate([table.values.ravel() for table in tables]),
    }
    run = {name: getattr(state.run, name) for name in (*_TEXTS, "seed")}
    run |= {"status": state.status, "config_hash": result.summary["config_hash"]}
    count = len(columns["value"])
    arrays = [pa.repeat(pa.scalar(run[name], _SCHEMA.field(name).type), count) for name in _OF_RUN]
    arrays += [
        column if isinstance(column, pa.Array) else pa.array(column, _SCHEMA.field(name).type, from_pandas=True)
        for name, column in columns.items()
    ]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)


def _csv_of(rows: pa.Table) -> str:
    """The lines of the rows of one run."""
    run = io.StringIO()
    csv.writer(run, lineterminator="").writerow([rows[name][0].as_py() for name in _OF_RUN])
    of_rows = [rows[name].to_numpy().tolist() for name in ("record", "step", "epoch", "metric", "value")]
    for column in (2, 4):
        of_rows[column] = ["" if number != number else repr(number) for number in of_rows[column]]
    before = run.getvalue()
    return "".join([f"{before},{a},{b},{c},{d},{e}\n" for a, b, c, d, e in zip(*of_rows, strict=True)])
