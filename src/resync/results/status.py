"""How far the runs of a scale are, from the files in their folders: nothing is asked of a scheduler.

It works while they run, on any machine that sees the results, and after whatever ended them.
"""

import csv
import json
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from resync.config import Run
from resync.processes.lock import holder

State = Literal["done", "diverged", "stale", "running", "stopped", "failed", "queued"]

_RECENT_ROWS = 20
"""Rows of steps.csv that say how long a step takes now."""

_SECONDS = ("data_seconds", "compute_seconds", "communication_seconds")
_CAUSE = re.compile(r"(resync: (error:|rank \d+ ends|Slurm)|[\w.]*(Error|Exception)\b)(?!.*ended with exit code)")


@dataclass(frozen=True)
class Status:
    """A run and how far it is.

    `state`: `queued` nothing has been trained; `running` a job holds the run's lock; `stopped` it was asked to stop
    and continues with the next job; `failed` its last job ended without results; `done` and `diverged` it has results;
    `stale` it has those of another configuration. `step` of `steps` and `epoch` are the last ones logged;
    `seconds_left` counts its remaining steps, without evaluations, at the speed of the last ones; `reason` says why
    it failed or diverged, or where it runs.
    """

    run: str
    state: State
    step: int
    steps: int
    epoch: float
    seconds_left: float | None
    reason: str


def status(run: Run, results: Path) -> Status:
    """How far `run` is, whose folder is below `results`."""
    directory = results / run.directory
    job = holder(directory)
    rows = _last_rows(directory)
    step = int(rows[-1]["step"]) if rows else 0
    state, reason = _state(run, directory, job)
    if state in ("done", "diverged", "stale"):
        step = int(_summary(directory)["steps"])
    left = _seconds_a_step(rows) * (run.total_steps - step) if state == "running" and rows else None
    return Status(run.id, state, step, run.total_steps, step / run.steps_per_epoch, left, reason)


def table(statuses: Iterable[Status]) -> str:
    """One line a run, and one that counts the states."""
    listed = list(statuses)
    lines = [("run", "state", "step", "epoch", "left", "")]
    lines += [(each.run, each.state, f"{each.step}/{each.steps}", f"{each.epoch:.1f}", _left(each), each.reason)
              for each in listed]  # fmt: skip
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    states = [each.state for each in listed]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return "\n".join([*text, "", f"{len(listed)} runs: {counts}" if listed else "no runs"])


def _state(run: Run, directory: Path, job: dict[str, Any] | None) -> tuple[State, str]:
    if job is not None:
        where = f"Slurm job {job['slurm_job']}" if job.get("slurm_job") else f"pid {job.get('pid')}"
        return "running", f"{where} on {job.get('host')} since {job.get('since')}"
    summary = _summary(directory)
    if summary:
        if summary["config_hash"] != run.hash:
            return "stale", "results of another configuration"
        if summary["status"] == "diverged":
            at = summary["diverged"]
            return "diverged", f"the loss was no number at step {at['step']}, worker {at['worker']}"
        return "done", ""
    lines = _log_lines(directory)
    if not lines:
        return "queued", ""
    if "with a checkpoint" in lines[-1] or "goes back to the queue" in lines[-1]:
        return "stopped", "continues from its checkpoint"
    causes = [line for line in lines if _CAUSE.match(line)]
    return "failed", causes[-1] if causes else f"ended without a word after: {lines[-1]}"


def _summary(directory: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((directory / "summary.json").read_text()))
    except FileNotFoundError:
        return {}


def _log_lines(directory: Path) -> list[str]:
    try:
        text = (directory / "train.log").read_text(errors="replace")
    except FileNotFoundError:
        return []
    return [line for line in text.splitlines() if line.strip()]


def _last_rows(directory: Path) -> list[dict[str, str]]:
    """The newest rows of a run that has not ended; what is being written is left out."""
    try:
        with (directory / "steps.csv.partial").open(newline="") as file:
            rows = deque(csv.DictReader(file), maxlen=_RECENT_ROWS)
    except FileNotFoundError:
        return []
    return [row for row in rows if all(row.values())]


def _seconds_a_step(rows: list[dict[str, str]]) -> float:
    return sum(float(row[name]) for row in rows for name in _SECONDS) / len(rows)


def _left(each: Status) -> str:
    return "" if each.seconds_left is None else str(timedelta(seconds=round(each.seconds_left)))
