"""Progress of the runs of a scale, read from the files in their folders, without asking a scheduler.

This works during and after the runs, on any machine that can read the results.
"""

import csv
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from resync.config import Run
from resync.config.metrics import METRICS, columns
from resync.results.runs import Status, state_of
from resync.text_tables import aligned

PROBLEMS: tuple[Status, ...] = ("damaged", "stale", "failed", "stopped")
"""The states that a run does not leave by itself."""

_RECENT_ROWS = 20
"""Number of rows at the end of steps.csv from which the current time per step is estimated."""

_SECONDS = [name for name in columns("steps") if METRICS[name].unit == "s" and METRICS[name].span == "step"]


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    `status` and `reason` are those of `resync.results.runs.RunState`; `step` (of `steps`) and `epoch` are the last
    logged ones; `seconds_left` is the time of the remaining steps at the current speed, without evaluations.
    """

    run: str
    status: Status
    step: int
    steps: int
    epoch: float
    seconds_left: float | None
    reason: str


def progress(run: Run, results: Path) -> Progress:
    """Progress of `run`, whose folder is below `results`."""
    state = state_of(run, results)
    rows = [] if state.result else _last_rows(results / run.directory)
    step = max(state.step, int(rows[-1]["step"]) if rows else 0)
    left = _seconds_per_step(rows) * (run.total_steps - step) if state.status == "running" and rows else None
    lacking = ", ".join(state.result.left_out) if state.result else ""
    reason = state.reason or (f"from an archive, without {lacking}" if lacking else "")
    return Progress(run.id, state.status, step, run.total_steps, step / run.steps_per_epoch, left, reason)


def table(found: Iterable[Progress], listed: Iterable[Progress] | None = None) -> str:
    """One line for each run that is listed, by default all, and a last line with the number of runs in each state."""
    runs = list(found)
    lines = [("run", "state", "step", "epoch", "left", "")]
    lines += [(each.run, each.status, f"{each.step}/{each.steps}", f"{each.epoch:.1f}", _left(each), each.reason)
              for each in (runs if listed is None else listed)]  # fmt: skip
    states = [each.status for each in runs]
    counts = ", ".join(f"{states.count(status)} {status}" for status in dict.fromkeys(states))
    text = [*aligned(lines, right=False), ""] if len(lines) > 1 or not runs else []
    return "\n".join([*text, f"{len(runs)} runs: {counts}" if runs else "no runs"])


def _last_rows(directory: Path) -> list[dict[str, str]]:
    """The latest rows of a run that has not ended, without one that is half-written or damaged."""
    try:
        with (directory / "steps.csv.partial").open(newline="", encoding="utf-8", errors="replace") as file:
            rows = deque(csv.DictReader(file), maxlen=_RECENT_ROWS)
    except (OSError, csv.Error):
        return []
    return [row for row in rows if _is_whole(row)]


def _is_whole(row: dict[str, str]) -> bool:
    try:
        return int(row["step"]) >= 0 and all(math.isfinite(float(row[name])) or row[name] == "nan" for name in _SECONDS)
    except (KeyError, TypeError, ValueError):
        return False


def _seconds_per_step(rows: list[dict[str, str]]) -> float:
    """Mean of the measured seconds; communication that was not measured separately is part of the computation."""
    values = (float(row[name]) for row in rows for name in _SECONDS)
    return sum(value for value in values if value == value) / len(rows)


def _left(each: Progress) -> str:
    return "" if each.seconds_left is None else str(timedelta(seconds=round(each.seconds_left)))
