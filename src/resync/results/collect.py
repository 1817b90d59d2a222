"""Export of all numbers of a paper's runs as one tidy table.

Nothing in this package reads the table: it is for other programs. Figures need only their own runs, and audits need
more of a run than its numbers; both read the runs' files (`resync.results.runs`).
"""

import io
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from resync.config import Run
from resync.files import write_bytes, write_text
from resync.results.runs import RunResult, RunState, state_of

_KEYS = ["paper", "scale", "experiment", "series", "label", "seed", "status", "config_hash"]
_TIDY = [*_KEYS, "record", "step", "epoch", "metric", "value"]


def collect(runs: Iterable[Run], results: Path) -> pd.DataFrame:
    """The long tidy table of `runs`: one row per value, in the order of the runs; NaN values are kept.

    Runs without results have no rows: `attrs` describes the damaged ones and those that are missing, one line per run.
    """
    frames = []
    lines: dict[str, list[str]] = {"missing": [], "damaged": []}
    for run in runs:
        state = state_of(run, results)
        if state.status == "damaged":
            lines["damaged"].append(f"{run.id} ({run.scale}): damaged: {state.reason}")
        elif state.result is None:
            lines["missing"].append(f"{run.id} ({run.scale}): {state.status}: {state.reason}")
        else:
            frames.append(_tidy(state, state.result))
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_TIDY)
    table.attrs.update(lines)
    return table


def write(frame: pd.DataFrame, stem: Path) -> list[Path]:
    """Write `stem`.parquet and `stem`.csv, each complete or not at all; return their paths."""
    binary, text = Path(f"{stem}.parquet"), Path(f"{stem}.csv")
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False), buffer)
    write_bytes(binary, buffer.getvalue())
    write_text(text, frame.to_csv(index=False, na_rep="nan"))
    return [binary, text]


def _tidy(state: RunState, result: RunResult) -> pd.DataFrame:
    keys = ["step", "epoch"]
    parts = [
        result.metrics.melt(keys, var_name="metric").assign(record="evaluation"),
        result.steps.melt(keys, var_name="metric").assign(record="step"),
        pd.DataFrame(result.final_values(), columns=["metric", "value"]).assign(
            record="summary", step=result.metrics["step"].iloc[-1], epoch=result.metrics["epoch"].iloc[-1]
        ),
    ]
    table = pd.concat(parts, ignore_index=True).astype({"value": "float64"})
    run = state.run
    declared = [run.paper, run.scale, run.experiment, run.series, run.label, run.seed]
    for key, value in zip(_KEYS, [*declared, state.status, result.summary["config_hash"]], strict=True):
        table[key] = value
    return table[_TIDY]
