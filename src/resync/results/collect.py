"""Export of all numbers of a paper's runs as one tidy table, after a comparison with the Weights & Biases logs.

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
from resync.results import wandb_log
from resync.results.runs import RunResult, RunState, state_of
from resync.results.tables import ResultsError

_KEYS = ["paper", "scale", "experiment", "series", "label", "seed", "status", "config_hash"]
_TIDY = [*_KEYS, "record", "step", "epoch", "metric", "value"]


def collect(runs: Iterable[Run], results: Path) -> pd.DataFrame:
    """The long tidy table of `runs`: one row per value, in the order of the runs; NaN values are kept.

    Runs without results have no rows; `attrs["missing"]` describes them, one line per run. Raises ResultsError with
    one line per damaged run and per difference between metrics.csv and wandb.
    """
    frames, missing, problems = [], [], []
    for run in runs:
        state = state_of(run, results)
        if state.status == "damaged":
            problems.append(state.reason)
            continue
        if state.result is None:
            missing.append(f"{run.id} ({run.scale}): {state.status}: {state.reason}")
            continue
        try:
            if state.status != "stale":
                trained_here = state.result.imported is None
                compare_with_wandb(state.result, required=trained_here and run.log.wandb != "disabled")
            frames.append(_tidy(state, state.result))
        except ResultsError as error:
            problems.append(str(error))
    if problems:
        raise ResultsError("\n".join(problems))
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_TIDY)
    table.attrs["missing"] = missing
    return table


def write(frame: pd.DataFrame, stem: Path) -> list[Path]:
    """Write `stem`.parquet and `stem`.csv, each complete or not at all; return their paths."""
    binary, text = Path(f"{stem}.parquet"), Path(f"{stem}.csv")
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False), buffer)
    write_bytes(binary, buffer.getvalue())
    write_text(text, frame.to_csv(index=False, na_rep="nan"))
    return [binary, text]


def compare_with_wandb(result: RunResult, required: bool = True) -> None:
    """Compare metrics.csv with the run's wandb logs. Raises ResultsError if they differ or a log is missing."""
    try:
        rows = [{str(key): value for key, value in row.items()} for row in result.metrics.to_dict("records")]
        wandb_log.compare(result.directory, rows, result.summary.get("resumed_from") or [], required)
    except wandb_log.WandbLogError as error:
        remedy = f"without {result.directory / 'summary.json'} the run is completed again from its last checkpoint"
        raise ResultsError(f"{error}; {remedy}") from None


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
