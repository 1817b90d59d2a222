"""Runs on disk: the only reader of a run's folder, for everything that needs a run's status or its results.

A number is read exactly as it was written, or not at all: a file that is missing, half-written, truncated, edited or
from another program makes the run *damaged*, for a reason of one line that names it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from resync.base.errors import UserError
from resync.base.files import read_bytes
from resync.base.processes.lock import holder
from resync.base.text_tables import one_line
from resync.runs.exchanges import number_of_rounds
from resync.runs.metrics.registry import SECONDS_PER_HOUR
from resync.runs.results import state
from resync.runs.results.errors import MissingRun, ResultsError
from resync.runs.results.recomputed import require_agreement
from resync.runs.results.state import Status
from resync.runs.results.summary import NAME, TOTALS, left_out, read_summary
from resync.runs.results.tables import Columns, read_table, whole_columns
from resync.runs.run import Run
from resync.runs.run.evaluated import EPOCH_ROUNDING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RunResult:
    """Results of a finished or diverged run: its summary, and the columns of metrics.csv and of steps.csv."""

    directory: Path
    evaluations: Columns
    samples: Columns
    summary: dict[str, Any]

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        """A row per evaluation."""
        return _frame(self.evaluations)

    @cached_property
    def steps(self) -> "pd.DataFrame":
        """A row per sampled step."""
        return _frame(self.samples)

    def final(self, metric: str) -> float:
        """Final value of a metric, in its unit. Raises ResultsError if the run does not have the metric."""
        values = dict(self.final_values())
        if metric not in values:
            raise ResultsError(f"{self.directory / 'summary.json'}: has no metric {metric}")
        return values[metric]

    def has(self, metric: str) -> bool:
        """Whether it has measured a metric, at its end or in a step."""
        return metric in (*dict(self.final_values()), *self.evaluations, *self.samples)

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

    def curve(self, metric: str) -> NDArray[Any]:
        """A column of metrics.csv. Raises ResultsError if the run does not have the column."""
        if metric not in self.evaluations:
            raise ResultsError(f"{self.directory / 'metrics.csv'}: has no column {metric}")
        return self.evaluations[metric]

    def at_epoch(self, metric: str, epoch: float) -> float:
        """A column of metrics.csv at the evaluation of an epoch. Raises ResultsError if there was none."""
        rows = np.abs(self.curve("epoch") - epoch) < EPOCH_ROUNDING
        if not rows.any():
            raise ResultsError(f"{self.directory / 'metrics.csv'}: has no evaluation at epoch {epoch:g}")
        return float(self.curve(metric)[rows][0])

    def at_workers(self, metric: str, workers: int) -> float:
        """A column of metrics.csv in the last row of a number of workers. Raises ResultsError if it has none."""
        rows = self.curve("searched_workers") == workers
        if not rows.any():
            raise ResultsError(f"{self.directory / 'metrics.csv'}: has no search for {workers} workers")
        return float(self.curve(metric)[rows][-1])

    @property
    def left_out(self) -> dict[str, str]:
        """The files that an archive has left out, with their SHA-256; none for results as a run wrote them."""
        return left_out(self.summary)

    @property
    def imported(self) -> dict[str, Any] | None:
        """Format and sources of a third-party log; None for a run trained here."""
        return self.summary.get("imported")


@dataclass(frozen=True)
class RunState:
    """Status of a declared run (see `Status`), the reason for it, and the results if they can be read.

    `step` is the last known step; `resync.runs.results.status` finds the latest step of a run that is still running.
    """

    run: Run
    status: Status
    reason: str
    result: RunResult | None = None
    step: int = 0

    @property
    def has_ended(self) -> bool:
        return self.status in ("finished", "diverged")


def state_of(run: Run, results: Path) -> RunState:
    """State of a declared run whose folder is below `results`."""
    try:
        run_state = _state_of(run, results / run.directory)
    except (UserError, OSError) as error:
        run_state = RunState(run, "damaged", str(error))
    return replace(run_state, reason=one_line(run_state.reason))


def _state_of(run: Run, directory: Path) -> RunState:
    job = holder(directory)
    if job is not None:
        where = f"Slurm job {job['slurm_job']}" if job.get("slurm_job") else f"pid {job.get('pid')}"
        return RunState(run, "running", f"{where} on {job.get('host')} since {job.get('since')}")
    try:
        summary = read_summary(directory / NAME)
    except MissingRun as error:
        return _unfinished(run, directory, str(error))
    stale = _why_stale(run, directory, summary)
    try:
        result = _read_files(directory, summary)
    except ResultsError:
        if not stale:
            raise
        # Files that another version of this program wrote are outdated, not damaged.
        return RunState(run, "stale", stale)
    if stale:
        return RunState(run, "stale", stale, result, int(summary["steps"]))
    _require_planned_rounds(run, result)
    diverged = summary.get("diverged") or {}
    place = " ".join(f"{key} {diverged[key]}" for key in ("step", "worker") if diverged.get(key) is not None)
    return RunState(run, summary["status"], f"at {place}" if place else "", result, int(summary["steps"]))


def _require_planned_rounds(run: Run, result: RunResult) -> None:
    """A finished training did the rounds that its configuration says, unless it might stop early or searched."""
    if result.summary["status"] != "finished" or result.imported or run.early_stopping or run.search:
        return
    rounds, planned = result.final("rounds"), number_of_rounds(run)
    if rounds != planned:
        raise ResultsError(
            f"{result.directory / NAME}: found {rounds:g} rounds, allowed: {planned}, as its schedule says"
        )


def read_run(directory: Path) -> RunResult:
    """The results in a run's directory, read strictly. Raises MissingRun or ResultsError with one line."""
    return _read_files(directory, read_summary(directory / NAME))


def _unfinished(run: Run, directory: Path, missing: str) -> RunState:
    try:
        last = state.recorded(directory)
    except ValueError as error:
        raise ResultsError(str(error)) from None
    if last is None:
        return RunState(run, "not run", missing)
    if last.config_hash != run.hash:
        other = f"its last job had configuration {last.config_hash}, the declared one is {run.hash}"
        return RunState(run, "not run", f"{missing}; {other}")
    if last.state == "running":
        reason = f"its processes ended without a message after {last.time}: killed?"
        return RunState(run, "failed", reason, step=last.step)
    return RunState(run, last.state, last.reason, step=last.step)


def _read_files(directory: Path, summary: dict[str, Any]) -> RunResult:
    file, whole = directory / "metrics.csv", whole_columns(imported=bool(summary.get("imported")))
    evaluations = read_table(file, whole, summary)
    samples = read_table(directory / "steps.csv", whole, summary)
    if not evaluations["step"].size:
        raise ResultsError(f"{file}: contains no evaluation")
    require_agreement(directory / NAME, summary, evaluations)
    return RunResult(directory, evaluations, samples, summary)


def _why_stale(run: Run, directory: Path, summary: dict[str, Any]) -> str:
    if summary["run"] != run.id:
        return f"these are results of {summary['run']}"
    if summary["config_hash"] != run.hash:
        return f"trained with configuration {summary['config_hash']}, the declared one is {run.hash}"
    file = directory / "run.yaml"
    try:
        # Validating the file again costs much more than reading it.
        same = read_bytes(file) == run.to_yaml().encode()
        on_disk = run.hash if same else Run.from_file(file).hash
    except (UserError, OSError) as error:
        return f"run.yaml cannot be read: {str(error).splitlines()[0]}"
    return "" if on_disk == run.hash else f"run.yaml has configuration {on_disk}, the declared one is {run.hash}"


def _frame(columns: Columns) -> "pd.DataFrame":
    from pandas import DataFrame  # not at the top: most readers need no frames, and the import is slow

    return DataFrame(columns)


def _number(value: float | None) -> float:
    """A number of a summary; in JSON, null stands for one that is NaN or infinite."""
    return math.nan if value is None else float(value)
