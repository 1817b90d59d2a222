"""From the files of runs to one tidy table: what every column means, strict reading, comparison with wandb.

A number is read as it was written or not at all: a file that is missing, half-written, truncated or not ours
is one CollectError line that names it, and a run without results is reported as missing.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from resync.config import ConfigError, Run
from resync.config.paper import SECONDS_PER_HOUR
from resync.files import write_bytes, write_text
from resync.results import wandb_log

_BOTH, _METRICS, _STEPS, _SUMMARY = ("metrics", "steps"), ("metrics",), ("steps",), ("summary",)


@dataclass(frozen=True)
class Column:
    """What a column holds, and how axes and tables call it. Not `required`: only some tasks have it."""

    title: str
    unit: str
    meaning: str
    files: tuple[str, ...] = _BOTH
    required: bool = True


COLUMNS: dict[str, Column] = {
    "step": Column("Step", "steps", "local steps completed by every worker; 0 is the evaluation before training"),
    "epoch": Column("Epoch", "epochs", "steps / steps_per_epoch"),
    "round": Column("Round", "rounds", "rounds completed; all-reduce and gossip complete one in every step"),
    "h": Column("Period H", "steps", "local steps of the round that the step is in"),
    "lr": Column("Learning rate", "1", "learning rate of the step"),
    "train_loss": Column("Training loss", "nats", "mean over the workers since the row before"),
    "val_loss": Column("Validation loss", "nats", "of the consensus model, of text a token", _METRICS, required=False),
    "val_top1": Column("Validation top-1 accuracy", "%", "of the consensus model", _METRICS, required=False),
    "val_perplexity": Column("Validation perplexity", "1", "exp(val_loss) of a token", _METRICS, required=False),
    "test_bleu": Column(
        "Test score", "BLEU", "0 to 100, of the consensus model's translations", _METRICS, required=False
    ),
    "sharpness": Column(
        "Sharpness",
        "nats",
        "trace of the Hessian of the training loss at the consensus model, estimated",
        _METRICS,
        required=False,
    ),
    "bytes_sent": Column("Bytes sent", "bytes", "by one worker: in metrics.csv since step 0, in steps.csv in the step"),
    "volume_percent": Column("Communication volume", "%", "so far, of an all-reduce in every step", _METRICS),
    "train_seconds": Column("Training clock", "s", "since step 0: data, forward, backward, optimizer", _METRICS),
    "data_seconds": Column("Data time", "s", "of the step, waiting for data", _STEPS),
    "compute_seconds": Column("Computing time", "s", "of the step, in forward, backward and optimizer", _STEPS),
    "communication_seconds": Column(
        "Communication clock", "s", "in exchanges: in metrics.csv since step 0, in steps.csv in the step"
    ),
    "training_seconds": Column(
        "Training time",
        "s",
        "since step 0, training and communication together: of imported logs that do not tell them apart",
        _METRICS,
        required=False,
    ),
    "evaluation_seconds": Column("Evaluation clock", "s", "since step 0, in no other clock", _METRICS),
    "hours": Column("Training time", "h", "training and communication clock at the end", _SUMMARY),
    "communication_hours": Column("Communication time", "h", "communication clock at the end", _SUMMARY),
    "seconds_per_step": Column("Time per step", "s", "training time / steps", _SUMMARY),
    "best_train_loss": Column("Best training loss", "nats", "smallest of all evaluations", _SUMMARY),
    "best_val_loss": Column("Best validation loss", "nats", "smallest of all evaluations", _SUMMARY, required=False),
    "best_val_top1": Column(
        "Best validation top-1 accuracy", "%", "largest of all evaluations", _SUMMARY, required=False
    ),
    "best_val_perplexity": Column(
        "Best validation perplexity", "1", "smallest of all evaluations", _SUMMARY, required=False
    ),
    "best_test_bleu": Column("Best test score", "BLEU", "largest of all evaluations", _SUMMARY, required=False),
    "wall_seconds": Column("Wall time", "s", "of the run, start-up included", _SUMMARY),
    "steps": Column("Steps", "steps", "local steps of the run", _SUMMARY),
    "rounds": Column("Rounds", "rounds", "of the run", _SUMMARY),
    "wire_bytes": Column("Bytes on the wire", "bytes", "sent by one process to others", _SUMMARY),
    "parameters": Column("Parameters", "1", "of one worker's model", _SUMMARY),
}
"""Every column and metric that results hold, documented here and nowhere else."""

_COUNTS = ("step", "round")
_TOTALS = ("steps", "rounds", "volume_percent", "bytes_sent")
_SUMMARY_KEYS = ("status", "run", "config_hash", *_TOTALS, "final", "seconds")
_KEYS = ["paper", "scale", "experiment", "series", "label", "seed", "status", "config_hash"]
_TIDY = [*_KEYS, "record", "step", "epoch", "metric", "value"]


class CollectError(ValueError):
    """Results that cannot be trusted; one line that names the run, the file and what is wrong."""


class MissingRun(CollectError):
    """A run that has not finished: no summary.json, which is written last."""


@dataclass(frozen=True)
class RunResult:
    """What a finished or diverged run left: `metrics` a row an evaluation, `steps` a row a sampled step."""

    directory: Path
    metrics: pd.DataFrame
    steps: pd.DataFrame
    summary: dict[str, Any]

    def final(self, metric: str) -> float:
        """The last value of a metric, in its unit. Raises CollectError if the run does not have it."""
        values = dict(_final_values(self))
        if metric not in values:
            raise CollectError(f"{self.directory / 'summary.json'}: has no metric {metric}")
        return values[metric]

    def curve(self, metric: str) -> pd.Series:
        """A column of metrics.csv. Raises CollectError if the run does not have it."""
        if metric not in self.metrics:
            raise CollectError(f"{self.directory / 'metrics.csv'}: has no column {metric}")
        return self.metrics[metric]

    @property
    def training_seconds(self) -> pd.Series:
        """Seconds since step 0 without evaluation, an evaluation each; NaN where a log does not say."""
        if "training_seconds" in self.metrics:
            return self.metrics["training_seconds"]
        return self.metrics["train_seconds"] + self.metrics["communication_seconds"]

    @property
    def imported(self) -> dict[str, Any] | None:
        """Format and sources of a log of others; None for a run of our own."""
        return self.summary.get("imported")


@dataclass(frozen=True)
class RunState:
    """A declared run and what is on disk of it: finished, diverged, stale or not run, with a reason."""

    run: Run
    status: str
    reason: str
    result: RunResult | None


def collect(runs: Iterable[Run], results: Path) -> pd.DataFrame:
    """The long tidy table of `runs`: one row a value, in the order of the runs, NaN kept.

    Runs without results have no rows; `attrs["missing"]` lists them, one line each. Raises CollectError with
    a line for every damaged file and every difference between metrics.csv and wandb.
    """
    frames, missing, problems = [], [], []
    for run in runs:
        try:
            state = state_of(run, results)
            if state.result is None:
                missing.append(f"{run.id} ({run.scale}): {state.reason}")
                continue
            if state.status != "stale":
                trained_here = state.result.imported is None
                compare_with_wandb(state.result, required=trained_here and run.log.wandb != "disabled")
            frames.append(_tidy(state))
        except CollectError as error:
            problems.append(str(error))
    if problems:
        raise CollectError("\n".join(problems))
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_TIDY)
    table.attrs["missing"] = missing
    return table


def write(frame: pd.DataFrame, stem: Path) -> list[Path]:
    """Write `stem`.parquet and `stem`.csv, each complete or not at all; return their paths."""
    parquet, text = Path(f"{stem}.parquet"), Path(f"{stem}.csv")
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    write_bytes(parquet, buffer.getvalue())
    write_text(text, frame.to_csv(index=False, na_rep="nan"))
    return [parquet, text]


def state_of(run: Run, results: Path) -> RunState:
    """What is on disk of a declared run. Raises CollectError if its files are damaged."""
    directory = results / run.directory
    try:
        result = read_run(directory)
    except MissingRun as error:
        return RunState(run, "not run", str(error), None)
    reason = _why_stale(run, result)
    if reason:
        return RunState(run, "stale", reason, result)
    diverged = result.summary.get("diverged") or {}
    place = " ".join(f"{key} {diverged[key]}" for key in ("step", "worker") if diverged.get(key) is not None)
    return RunState(run, result.summary["status"], f"at {place}" if place else "", result)


def read_run(directory: Path) -> RunResult:
    """The results in a run's directory, read strictly. Raises MissingRun or CollectError, one line each."""
    summary = _read_summary(directory / "summary.json")
    counts = ("step",) if summary.get("imported") else _COUNTS  # a log of others may count no rounds
    metrics = _read_table(directory / "metrics.csv", counts)
    steps = _read_table(directory / "steps.csv", counts)
    if metrics.empty:
        raise CollectError(f"{directory / 'metrics.csv'}: no evaluation in it")
    last = metrics["step"].iloc[-1]
    if summary["status"] == "finished" and last != summary["steps"]:
        message = f"ends at step {last}, summary.json at {summary['steps']}: truncated?"
        raise CollectError(f"{directory / 'metrics.csv'}: {message}")
    return RunResult(directory, metrics, steps, summary)


def compare_with_wandb(result: RunResult, required: bool = True) -> None:
    """Compare metrics.csv with the run's wandb logs. Raises CollectError if they differ or lack."""
    try:
        rows = [{str(key): value for key, value in row.items()} for row in result.metrics.to_dict("records")]
        wandb_log.compare(result.directory, rows, result.summary.get("resumed_from") or [], required)
    except wandb_log.WandbLogError as error:
        remedy = f"without {result.directory / 'summary.json'} the run is finished again from its last checkpoint"
        raise CollectError(f"{error}; {remedy}") from None


def _why_stale(run: Run, result: RunResult) -> str:
    """Why results are not those of the declared run; empty if they are."""
    if result.summary["run"] != run.id:
        return f"these are results of {result.summary['run']}"
    if result.summary["config_hash"] != run.hash:
        return f"trained with configuration {result.summary['config_hash']}, declared is {run.hash}"
    try:
        on_disk = Run.from_file(result.directory / "run.yaml").hash
    except (ConfigError, OSError) as error:
        return f"run.yaml cannot be read: {str(error).splitlines()[0]}"
    return "" if on_disk == run.hash else f"run.yaml has configuration {on_disk}, declared is {run.hash}"


def _tidy(state: RunState) -> pd.DataFrame:
    result = state.result
    assert result is not None
    keys = ["step", "epoch"]
    parts = [
        result.metrics.melt(keys, var_name="metric").assign(record="evaluation"),
        result.steps.melt(keys, var_name="metric").assign(record="step"),
        pd.DataFrame(_final_values(result), columns=["metric", "value"]).assign(
            record="summary", step=result.metrics["step"].iloc[-1], epoch=result.metrics["epoch"].iloc[-1]
        ),
    ]
    table = pd.concat(parts, ignore_index=True).astype({"value": "float64"})
    run = state.run
    declared = [run.paper, run.scale, run.experiment, run.series, run.label, run.seed]
    for key, value in zip(_KEYS, [*declared, state.status, result.summary["config_hash"]], strict=True):
        table[key] = value
    return table[_TIDY]


def _final_values(result: RunResult) -> Iterator[tuple[str, float]]:
    """The numbers at the end: final metrics under their own name, best ones as `best_<metric>`, and times."""
    summary = result.summary
    numbers = {key: summary.get(key) for key in (*_TOTALS, "wire_bytes", "parameters")}
    numbers |= {f"{clock}_seconds": value for clock, value in summary["seconds"].items()}
    training, communication = result.training_seconds.iloc[-1], _number(summary["seconds"]["communication"])
    numbers |= {"hours": training / SECONDS_PER_HOUR, "communication_hours": communication / SECONDS_PER_HOUR}
    numbers |= {"seconds_per_step": training / summary["steps"] if summary["steps"] else None}
    numbers |= {f"best_{metric}": value for metric, value in (summary.get("best") or {}).items()}
    numbers = summary["final"] | numbers
    return ((key, _number(value)) for key, value in numbers.items())


def _number(value: float | None) -> float:
    """A number of a summary; JSON writes null for what is no number."""
    return math.nan if value is None else float(value)


def _read_summary(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise MissingRun(f"{path}: missing, the run has not finished")
    try:
        summary = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise CollectError(f"{path}: not JSON, half-written? ({error})") from None
    if not isinstance(summary, dict) or (absent := [key for key in _SUMMARY_KEYS if key not in summary]):
        lacking = ", ".join(absent) if summary else "everything"
        raise CollectError(f"{path}: not a run's summary, lacks {lacking}")
    if summary["status"] not in ("finished", "diverged"):
        raise CollectError(f"{path}: status is {summary['status']!r}, allowed: finished, diverged")
    return summary


def _read_table(path: Path, counts: Iterable[str]) -> pd.DataFrame:
    """A CSV of numbers: all declared columns, no other, every line complete, steps that only grow."""
    if not path.exists():
        raise CollectError(f"{path}: missing, although summary.json says that the run ended")
    text = _read_text(path)
    if not text and path.stem == "steps":  # the run ended before its first sampled step
        return pd.DataFrame(columns=list(_columns_of("steps")), dtype="float64")
    if not text.endswith("\n"):
        raise CollectError(f"{path}: the last line has no end: half-written")
    header, *lines = list(csv.reader(text.splitlines())) or [[]]
    if unknown := [name for name in header if name not in COLUMNS or path.stem not in COLUMNS[name].files]:
        raise CollectError(f"{path}: not one of our files, it has a column {unknown[0]!r}")
    if absent := [name for name in _columns_of(path.stem) if name not in header]:
        raise CollectError(f"{path}: lacks the column {', '.join(absent)}")
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            counts = f"{len(line)} values, the header {len(header)}"
            raise CollectError(f"{path}: line {number} has {counts}: half-written?")
    try:
        table = pd.DataFrame([[float(value or "nan") for value in line] for line in lines], columns=header)
        table = table.astype({name: "int64" if name in counts else "float64" for name in header})
    except ValueError as error:
        raise CollectError(f"{path}: {error}") from None
    if not table["step"].is_monotonic_increasing or not table["step"].is_unique:
        raise CollectError(f"{path}: steps do not grow from line to line")
    return table


def _columns_of(file: str) -> Iterator[str]:
    """The columns that a file always has."""
    return (name for name, column in COLUMNS.items() if column.required and file in column.files)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CollectError(f"{path}: not text: damaged") from None
