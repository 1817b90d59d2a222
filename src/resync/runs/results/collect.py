"""All numbers of a paper's runs as one tidy table, for other programs.

It is made of the same `RunResult` that figures, tables and audits read, which need more of a run than its numbers.
"""

import csv
import io
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from resync.base.files import replacing
from resync.runs.results.runs import RunResult, RunState, state_of
from resync.runs.results.tables import Columns
from resync.runs.run import Run

_TEXTS = ("paper", "scale", "experiment", "series", "label")
_NUMBERS = {"seed": pa.int64(), "step": pa.int64(), "epoch": pa.float64(), "value": pa.float64()}
_OF_RUN = (*_TEXTS, "seed", "status", "config_hash")
_COLUMNS = (*_OF_RUN, "record", "step", "epoch", "metric", "value")
_SCHEMA = pa.schema([(name, _NUMBERS.get(name, pa.string())) for name in _COLUMNS])
_AT_ONCE = 64
"""Runs whose rows are written together: a call for each would take longer than its work."""


@dataclass
class Collected:
    """The files of an export, and the runs that have no rows in it: one line per run."""

    parquet: Path
    csv: Path
    missing: list[str]
    damaged: list[str]


def collect(runs: Sequence[Run], results: Path, stem: Path) -> Collected:
    """Write the long tidy table of `runs` as `stem`.parquet and `stem`.csv, each complete or not at all.

    It has one row per value, in the order of the runs; NaN values are kept. Only a few runs are in memory at a time.
    """
    collected = Collected(Path(f"{stem}.parquet"), Path(f"{stem}.csv"), [], [])
    with ExitStack() as stack:
        binary, text = (stack.enter_context(replacing(path)) for path in (collected.parquet, collected.csv))
        # Without Arrow's schema, a column of texts is read as that, however it was written.
        columns = stack.enter_context(parquet.ParquetWriter(binary, _table([]).schema, store_schema=False))
        text.write((",".join(_COLUMNS) + "\n").encode())
        for first in range(0, len(runs), _AT_ONCE):
            states = [state_of(run, results) for run in runs[first : first + _AT_ONCE]]
            for state in (state for state in states if not state.result):
                of = collected.damaged if state.status == "damaged" else collected.missing
                of.append(f"{state.run.id} ({state.run.scale}): {state.status}: {state.reason}")
            if rows := [_Rows.of(state, state.result) for state in states if state.result]:
                columns.write_table(_table(rows))
                text.write("".join(of_run.lines() for of_run in rows).encode())
    return collected


class _Numbers(NamedTuple):
    """The numbers of a table, `values` [metrics, rows]."""

    record: str
    steps: NDArray[np.int64]
    epochs: NDArray[np.float64]
    metrics: list[str]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, record: str, table: Columns) -> "_Numbers":
        metrics = [name for name in table if name not in ("step", "epoch")]
        values = np.array([table[name] for name in metrics], np.float64)
        return cls(record, table["step"], table["epoch"], metrics, values)


class _Rows(NamedTuple):
    """The rows of a run: what all of them begin with, and its tables that have any."""

    of_run: list[Any]
    tables: list[_Numbers]

    @classmethod
    def of(cls, state: RunState, result: RunResult) -> "_Rows":
        evaluations, final = _Numbers.of("evaluation", result.evaluations), dict(result.final_values())
        at_the_end = evaluations.steps[-1:], evaluations.epochs[-1:], list(final), np.array([[*final.values()]]).T
        tables = [evaluations, _Numbers.of("step", result.samples), _Numbers("summary", *at_the_end)]
        run = {name: getattr(state.run, name) for name in (*_TEXTS, "seed")}
        run |= {"status": state.status, "config_hash": result.summary["config_hash"]}
        return cls([run[name] for name in _OF_RUN], [table for table in tables if table.values.size])

    def lines(self) -> str:
        """Those of the CSV file."""
        run, lines = io.StringIO(), list[str]()
        csv.writer(run, lineterminator="").writerow(self.of_run)
        for record, steps, epochs, metrics, values in self.tables:
            before = f"{run.getvalue()},{record},"
            places = [f"{before}{step},{epoch}," for step, epoch in zip(steps.tolist(), _texts(epochs), strict=True)]
            for metric, texts in zip(metrics, map(_texts, values), strict=True):
                lines += [f"{place}{metric},{text}\n" for place, text in zip(places, texts, strict=True)]
        return "".join(lines)


def _texts(numbers: NDArray[np.float64]) -> list[str]:
    return ["" if text == "nan" else text for text in map(repr, numbers.tolist())]


def rows_of(states: Sequence[RunState]) -> pa.Table:
    """The values of runs that have results, a row each, run by run and metric by metric; null stands for NaN."""
    return _table([_Rows.of(state, state.result) for state in states if state.result]).cast(_SCHEMA)


def _table(rows: Sequence[_Rows]) -> pa.Table:
    """The same, with each text once."""
    tables = [table for of_run in rows for table in of_run.tables]
    of_run = [(each.of_run, sum(table.values.size for table in each.tables)) for each in rows]
    columns: dict[str, list[tuple[Any, int]]] = {
        name: [(values[place], count) for values, count in of_run] for place, name in enumerate(_OF_RUN)
    }
    columns["record"] = [(table.record, table.values.size) for table in tables]
    columns["metric"] = [(metric, len(table.steps)) for table in tables for metric in table.metrics]
    numbers: dict[str, list[NDArray[Any]]] = {
        "step": [np.tile(table.steps, len(table.metrics)) for table in tables],
        "epoch": [np.tile(table.epochs, len(table.metrics)) for table in tables],
        "value": [table.values.ravel() for table in tables],
    }
    nothing = np.empty(0, np.int64)
    arrays = {
        name: pa.array(np.concatenate([nothing, *numbers[name]]), _SCHEMA.field(name).type, from_pandas=True)
        if name in numbers
        else _repeated(columns[name], _SCHEMA.field(name).type)
        for name in _COLUMNS
    }
    return pa.table(arrays)


def _repeated(values: Sequence[tuple[Any, int]], kind: pa.DataType) -> pa.Array:
    """Each value so many times; of texts, where each is."""
    known = {value: place for place, value in enumerate(dict.fromkeys(value for value, _ in values))}
    places = np.repeat([known[value] for value, _ in values], [count for _, count in values])
    repeated = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array([*known], kind))
    return repeated if kind == pa.string() else repeated.dictionary_decode()
