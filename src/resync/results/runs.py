"""Runs on disk: the only reader of a run's folder, for everything that needs a run's status or its results.

A number is read exactly as it was written, or not at all: a file that is missing, half-written, truncated, edited or
from another program makes the run *damaged*, for a reason of one line that names it.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resync.errors import UserError
from resync.files import read_bytes
from resync.metrics.registry import SECONDS_PER_HOUR, columns
from resync.plan.exchanges import number_of_rounds
from resync.processes.lock import holder
from resync.results import state, wandb_log
from resync.results.errors import MissingRun, ResultsError
from resync.results.recomputed import require_agreement
from resync.results.state import Status
from resync.results.summary import DIGESTS, NAME, TOTALS, digest_of, left_out, read_summary
from resync.results.tables import parse_table, read_table, whole_columns
from resync.run import Run
from resync.run.evaluated import EPOCH_ROUNDING, evaluation_steps
from resync.settings.errors import ConfigError
from resync.text_tables import csv_text, one_line

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RunResult:
    """Results of a finished or diverged run: its summary, and a row per evaluation and per sampled step.

    `from_wandb` says that metrics.csv is missing, and that the evaluations are those in the run's wandb logs.
    """

    directory: Path
    metrics: "pd.DataFrame"
    steps: "pd.DataFrame"
    summary: dict[str, Any]
    from_wandb: bool = False

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

    def at_workers(self, metric: str, workers: int) -> float:
        """A column of metrics.csv in the row of a number of workers. Raises ResultsError if it has none."""
        rows = self.curve("searched_workers") == workers
        if not rows.any():
            raise ResultsError(f"{self.directory / 'metrics.csv'}: has no search for {workers} workers")
        return float(self.curve(metric)[rows].iloc[0])

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

    `step` is the last known step; `resync.results.status` finds the latest step of a run that is still running.
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
        found = _state_of(run, results / run.directory)
    except (UserError, OSError) as error:
        found = RunState(run, "damaged", str(error))
    return replace(found, reason=one_line(found.reason))


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
    reasons = [f"at {place}"] if place else []
    if result.from_wandb:
        reasons.append("from wandb, since metrics.csv is missing")
    return RunState(run, summary["status"], "; ".join(reasons), result, int(summary["steps"]))


def _require_planned_rounds(run: Run, result: RunResult) -> None:
    """A finished training did the rounds that its configuration says, unless it might stop early or searched."""
    if result.summary["status"] != "finished" or result.imported or run.early_stopping or run.search:
        return
    found, planned = result.final("rounds"), number_of_rounds(run)
    if found != planned:
        raise ResultsError(
            f"{result.directory / NAME}: found {found:g} rounds, allowed: {planned}, as its schedule says"
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
    from_wandb = not file.exists() and bool(_recorded_logs(summary))
    metrics = _read_wandb(file, whole, summary) if from_wandb else read_table(file, whole, summary)
    steps = read_table(directory / "steps.csv", whole, summary)
    if metrics.empty:
        raise ResultsError(f"{file}: contains no evaluation")
    require_agreement(directory / NAME, summary, metrics)
    if not from_wandb:
        _compare_with_wandb(directory, summary, metrics)
    return RunResult(directory, metrics, steps, summary, from_wandb)


def _recorded_logs(summary: dict[str, Any]) -> dict[str, str]:
    return {name: written for name, written in summary[DIGESTS].items() if name.startswith(wandb_log.FOLDER)}


def _read_wandb(lost: Path, whole: Iterable[str], summary: dict[str, Any]) -> "pd.DataFrame":
    """The evaluations of a run whose metrics.csv is lost, from its wandb logs. Raises ResultsError."""
    directory = lost.parent
    for name, written in _recorded_logs(summary).items():
        if not (directory / name).exists() or digest_of(directory / name) != written:
            raise ResultsError(f"{lost}: missing, and {name}, which has its values, is missing too or was changed")
    try:
        rows = wandb_log.read_evaluations(directory, evaluation_steps(Run.from_file(directory / "run.yaml")))
    except (ConfigError, wandb_log.WandbLogError) as error:
        raise ResultsError(f"{lost}: missing, and cannot be read from wandb: {error}") from None
    names = [name for name in columns("metrics") if any(name in row for row in rows)]
    text = csv_text(({name: row.get(name, math.nan) for name in names} for row in rows), names)
    return parse_table(lost, text.encode(), whole)


def _compare_with_wandb(directory: Path, summary: dict[str, Any], metrics: "pd.DataFrame") -> None:
    """Require the wandb logs with which metrics.csv was compared when it was written; compare changed ones again."""
    recorded = _recorded_logs(summary)
    if lost := [name for name in recorded if not (directory / name).exists()]:
        raise ResultsError(f"{directory / lost[0]}: missing, although summary.json has its SHA-256")
    if any(digest_of(directory / name) != written for name, written in recorded.items()):
        try:
            wandb_log.compare(directory, metrics.to_dict("records"), summary.get("resumed_from") or [])
        except wandb_log.WandbLogError as error:
            remedy = f"without {directory / NAME} the run is completed again from its last checkpoint"
            raise ResultsError(f"{error}; {remedy}") from None


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


def _number(value: float | None) -> float:
    """A number of a summary; in JSON, null stands for one that is NaN or infinite."""
    return math.nan if value is None else float(value)
