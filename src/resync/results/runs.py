"""Runs on disk: the only reader of a run's folder, for everything that needs a run's status or its results.

A number is read exactly as it was written, or not at all: a file that is missing, half-written, truncated or from
another program is reported in one line that names it.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from resync.config import ConfigError, Run
from resync.config.metrics import SECONDS_PER_HOUR
from resync.processes.lock import holder
from resync.results import state
from resync.results.tables import ResultsError, read_table, whole_columns

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["not run", "running", "stopped", "failed", "finished", "diverged", "stale", "damaged"]
"""Status of a run:

- `not run`: it has not been trained at all;
- `running`: a job holds the run's lock;
- `stopped`: it was asked to stop, and the next job continues from its checkpoint;
- `failed`: its last job ended without results;
- `finished` and `diverged`: it has results;
- `stale`: it has results, but of another configuration;
- `damaged`: it has results that cannot be read.
"""

EPOCH_ROUNDING = 1e-6
TOTALS = ("steps", "rounds", "volume_percent", "bytes_sent")
_SUMMARY_KEYS = ("status", "run", "config_hash", *TOTALS, "final", "seconds")


class MissingRun(ResultsError):
    """A run that has not finished: no summary.json, which is written last."""


@dataclass(frozen=True)
class RunResult:
    """Results of a finished or diverged run: its summary and its two tables."""

    directory: Path
    evaluations: pa.Table
    sampled: pa.Table
    summary: dict[str, Any]

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        """metrics.csv: one row per evaluation."""
        return self.evaluations.to_pandas()

    @cached_property
    def steps(self) -> "pd.DataFrame":
        """steps.csv: one row per sampled step."""
        return self.sampled.to_pandas()

    def final(self, metric: str) -> float:
        """Final value of a metric, in its unit. Raises ResultsError if the run does not have the metric."""
        values = dict(self.final_values())
        if metric not in values:
            raise ResultsError(f"{self.directory / 'summary.json'}: has no metric {metric}")
        return values[metric]

    def final_values(self) -> Iterator[tuple[str, float]]:
        """The numbers of the summary: final metrics under their own names, best ones as `best_<metric>`, and times."""
        summary, seconds = self.summary, self.summary["seconds"]
        numbers = dict(summary["final"])
        numbers |= {key: summary.get(key) for key in (*TOTALS, "wire_bytes", "parameters")}
        numbers |= {f"{clock}_seconds": value for clock, value in seconds.items()}
        training, communication = _number(seconds["training"]), _number(seconds["communication"])
        numbers |= {"training_hours": training / SECONDS_PER_HOUR}
        numbers |= {"communication_hours": communication / SECONDS_PER_HOUR}
        numbers |= {"seconds_per_step": training / summary["steps"] if summary["steps"] else None}
        numbers |= {f"best_{metric}": value for metric, value in (summary.get("best") or {}).items()}
        return ((key, _number(value)) for key, value in numbers.items())

    def curve(self, metric: str) -> "pd.Series":
        """A column of metrics.csv. Raises ResultsError if the run does not have the column."""
        if metric not in self.metrics:
            raise ResultsError(f"{self.directory / 'metrics.csv'}: has no column {metric}")
        return self.metrics[metric]

    def at_epoch(self, metric: str, epoch: float) -> float:
        """A column of metrics.csv at the evaluation of an epoch. Raises ResultsError if there was none."""
        rows = self.metrics["epoch"].sub(epoch).abs() < EPOCH_ROUNDING
        if not rows.any():
            raise ResultsError(f"{self.directory / 'metrics.csv'}: has no evaluation at epoch {epoch:g}")
        return float(self.curve(metric)[rows].iloc[0])

    @property
    def imported(self) -> dict[str, Any] | None:
        """Format and sources of a third-party log; None for a run trained here."""
        return self.summary.get("imported")


@dataclass(frozen=True)
class RunState:
    """Status of a declared run (see `Status`), the reason for it, and the results if they can be read.

    `step` is the last known step; `resync.results.status` finds the latest step of a run that is still running.
    """

    run: Run
    status: Status
    reason: str
    result: RunResult | None = None
    step: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether it has results of the declared configuration."""
        return self.status in ("finished", "diverged")


def state_of(run: Run, results: Path) -> RunState:
    """State of a declared run whose folder is below `results`."""
    directory = results / run.directory
    job = holder(directory)
    if job is not None:
        where = f"Slurm job {job['slurm_job']}" if job.get("slurm_job") else f"pid {job.get('pid')}"
        return RunState(run, "running", f"{where} on {job.get('host')} since {job.get('since')}")
    try:
        summary = _read_summary(directory / "summary.json")
    except MissingRun as error:
        return _unfinished(run, directory, str(error))
    except ResultsError as error:
        return RunState(run, "damaged", str(error))
    stale = _why_stale(run, directory, summary)
    try:
        result = _read_tables(directory, summary)
    except ResultsError as error:
        # Files that another version of this program wrote are outdated, not damaged.
        return RunState(run, "stale", stale) if stale else RunState(run, "damaged", str(error))
    if stale:
        return RunState(run, "stale", stale, result, int(summary["steps"]))
    diverged = summary.get("diverged") or {}
    place = " ".join(f"{key} {diverged[key]}" for key in ("step", "worker") if diverged.get(key) is not None)
    return RunState(run, summary["status"], f"at {place}" if place else "", result, int(summary["steps"]))


def read_run(directory: Path) -> RunResult:
    """The results in a run's directory, read strictly. Raises MissingRun or ResultsError with one line."""
    return _read_tables(directory, _read_summary(directory / "summary.json"))


def _unfinished(run: Run, directory: Path, missing: str) -> RunState:
    """State of a run that has no summary and that no job is training."""
    try:
        last = state.recorded(directory)
    except ValueError as error:
        return RunState(run, "damaged", str(error))
    if last is None:
        return RunState(run, "not run", missing)
    if last.config_hash != run.hash:
        other = f"its last job had configuration {last.config_hash}, the declared one is {run.hash}"
        return RunState(run, "not run", f"{missing}; {other}")
    if last.state == "running":
        reason = f"its processes ended without a message after {last.time}: killed?"
        return RunState(run, "failed", reason, step=last.step)
    return RunState(run, last.state, last.reason, step=last.step)


def _read_tables(directory: Path, summary: dict[str, Any]) -> RunResult:
    whole = whole_columns(imported=bool(summary.get("imported")))
    metrics, steps = (read_table(directory / f"{name}.csv", whole) for name in ("metrics", "steps"))
    if not metrics.num_rows:
        raise ResultsError(f"{directory / 'metrics.csv'}: contains no evaluation")
    last = metrics["step"][-1].as_py()
    if summary["status"] == "finished" and last != summary["steps"]:
        message = f"ends at step {last}, summary.json at {summary['steps']}: truncated?"
        raise ResultsError(f"{directory / 'metrics.csv'}: {message}")
    return RunResult(directory, metrics, steps, summary)


def _why_stale(run: Run, directory: Path, summary: dict[str, Any]) -> str:
    """Why the results are not those of the declared run; empty if they are."""
    if summary["run"] != run.id:
        return f"these are results of {summary['run']}"
    if summary["config_hash"] != run.hash:
        return f"trained with configuration {summary['config_hash']}, the declared one is {run.hash}"
    file = directory / "run.yaml"
    try:
        # Validating the file again costs much more than reading it.
        same = file.read_text(encoding="utf-8") == run.to_yaml()
        on_disk = run.hash if same else Run.from_file(file).hash
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        return f"run.yaml cannot be read: {str(error).splitlines()[0]}"
    return "" if on_disk == run.hash else f"run.yaml has configuration {on_disk}, the declared one is {run.hash}"


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingRun(f"{path}: missing, the run has not finished") from None
    except UnicodeDecodeError:
        raise ResultsError(f"{path}: not text: damaged") from None
    except json.JSONDecodeError as error:
        raise ResultsError(f"{path}: not JSON, half-written? ({error})") from None
    if not isinstance(summary, dict) or (absent := [key for key in _SUMMARY_KEYS if key not in summary]):
        lacking = ", ".join(absent) if summary else "everything"
        raise ResultsError(f"{path}: not a run's summary, {lacking} missing")
    if summary["status"] not in ("finished", "diverged"):
        raise ResultsError(f"{path}: status is {summary['status']!r}, allowed: finished, diverged")
    return summary


def _number(value: float | None) -> float:
    """A number of a summary; in JSON, null stands for one that is NaN or infinite."""
    return math.nan if value is None else float(value)
