"""All numbers of a paper's runs as one tidy table, for other programs.

It is made of the same `RunResult` that figures, tables and audits read, which need more of a run than its numbers.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from resync.files import replacing
from resync.results.runs import RunResult, RunState, state_of
from resync.run import Run

_TEXTS = ("paper", "scale", "experiment", "series", "label")
_NUMBERS = {"seed": pa.int64(), "step": pa.int64(), "epoch": pa.float64(), "value": pa.float64()}
_COLUMNS = (*_TEXTS, "seed", "status", "config_hash", "record", "step", "epoch", "metric", "value")
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
    found = Collected(Path(f"{stem}.parquet"), Path(f"{stem}.csv"), [], [])
    with ExitStack() as stack:
        binary, text = (stack.enter_context(replacing(path)) for path in (found.parquet, found.csv))
        columns = stack.enter_context(parquet.ParquetWriter(binary, _SCHEMA))
        pd.DataFrame(columns=_SCHEMA.names).to_csv(text, index=False)
        for run in runs:
            state = state_of(run, results)
            if state.result:
                rows = rows_of(state, state.result)
                columns.write_table(pa.Table.from_pandas(rows, _SCHEMA, preserve_index=False))
                rows.to_csv(text, index=False, header=False)
            else:
                of = found.damaged if state.status == "damaged" else found.missing
                of.append(f"{run.id} ({run.scale}): {state.status}: {state.reason}")
    return found


def rows_of(state: RunState, result: RunResult) -> pd.DataFrame:
    """The values of a run, a row each."""
    summary = result.metrics[["step", "epoch"]].tail(1).assign(**dict(result.final_values()))
    tables = {"evaluation": result.metrics, "step": result.steps, "summary": summary}
    melted = (
        table.melt(["step", "epoch"], var_name="metric").assign(record=record)
        for record, table in tables.items() if len(table)
    )  # fmt: skip
    keys = {name: getattr(state.run, name) for name in (*_TEXTS, "seed")}
    keys |= {"status": state.status, "config_hash": result.summary["config_hash"]}
    return pd.concat(melted, ignore_index=True).assign(**keys)[_SCHEMA.names]
