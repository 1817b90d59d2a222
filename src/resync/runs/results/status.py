"""Progress of the runs of a scale, read from the files in their folders, without asking a scheduler.

This works during and after the runs, on any machine that can read the results.
"""

import csv
import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from resync.base.errors import UserError
from resync.base.files import open_regular
from resync.base.text_tables import aligned
from resync.runs.metrics.registry import BEST, METRICS, columns
from resync.runs.results.runs import RunState, state_of
from resync.runs.results.state import Status
from resync.runs.run import Run
from resync.runs.run.in_words import tallied
from resync.runs.run.run import SCALES

PROBLEMS: tuple[Status, ...] = ("damaged", "stale", "failed", "stopped")
"""The states that a run does not leave by itself."""

_URGENCY: tuple[Status, ...] = (*PROBLEMS, "diverged", "running", "not run", "finished")
"""The states from the one that a reader must know of first; a series has that of its most urgent run."""

_RECENT_ROWS = 20
"""Number of rows at the end of steps.csv from which the current time per step is estimated."""

_SECONDS = [name for name in columns("steps") if METRICS[name].unit == "s" and METRICS[name].span == "step"]

_SHOWN = sorted(
    (name for name in BEST if not name.startswith("train_")), key=lambda name: METRICS[name].better != "higher"
)
"""The validation metrics, of which progress shows the first that a run has: accuracies and BLEU before losses."""


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    `status` and `reason` are those of `resync.runs.results.runs.RunState`; `step` (of `steps`) and `epoch` are the last
    logged ones; `seconds_left` is the time of the remaining steps at the current speed, without evaluations; `metric`
    and `value` are of the last evaluation, None before the first one.
    """

    run: str
    status: Status
    step: int
    steps: int
    epoch: float
    seconds_left: float | None
    reason: str
    metric: str | None = None
    value: float | None = None

    @property
    def series(self) -> str:
        return self.run.rpartition("/")[0]


class StatusLine(NamedTuple):
    """A line of the table: its cells, and the state that it is about."""

    cells: tuple[str, ...]
    status: Status


def progress(run: Run, results: Path) -> Progress:
    """Progress of `run`, whose folder is below `results`."""
    state = state_of(run, results)
    logged = [] if state.result else _rows(results / run.directory / "steps.csv.partial", _RECENT_ROWS)
    rows = [row for row in logged if _is_whole(row)]
    step = max(state.step, int(rows[-1]["step"]) if rows else 0)
    seconds = sum(float(row[name]) for row in rows for name in _SECONDS if row[name] != "nan")
    left = seconds / len(rows) * (run.total_steps - step) if state.status == "running" and rows else None
    metric, value = _last_evaluation(state, results / run.directory)
    lacking = ", ".join(state.result.left_out) if state.result else ""
    reason = state.reason or (f"from an archive, without {lacking}" if lacking else "")
    epoch = step / run.steps_per_epoch
    return Progress(run.id, state.status, step, run.total_steps, epoch, left, reason, metric, value)


def newest_scale(results: Path) -> str:
    """The scale in whose folder a run was written last; `smoke` if there is none."""
    newest = {
        scale: max((folder.stat().st_mtime for folder in (results / scale).glob("*/*/*/seed*")), default=0.0)
        for scale in SCALES
    }
    return max(SCALES, key=lambda scale: newest[scale])


def table(listed: Iterable[Progress], by: Literal["run", "series"] = "run", last: str = "") -> str:
    """One line for each run or series, and a last line, by default the number of runs in each state."""
    runs = list(listed)
    lines = [heading(by), *(line.cells for line in lines_of(runs, by))] if runs else []
    return "\n".join([*aligned(lines, right=False), *([""] if lines else []), last or counted(runs)])


def counted(runs: Sequence[Progress]) -> str:
    """How many of the runs are in each state."""
    return f"{len(runs)} runs: {tallied(Counter(run.status for run in runs))}" if runs else "no runs"


def heading(by: Literal["run", "series"]) -> tuple[str, ...]:
    """The first line of the table."""
    return by, "state", "step", "epoch", "left", "last value", ""


def lines_of(listed: Iterable[Progress], by: Literal["run", "series"]) -> list[StatusLine]:
    """A line for each run, or for each series with its seeds counted by state."""
    runs = list(listed)
    if by == "run":
        return [StatusLine((run.run, run.status, *_place(run), run.reason), run.status) for run in runs]
    series: dict[str, list[Progress]] = {}
    for run in runs:
        series.setdefault(run.series, []).append(run)
    return [_line_of_series(name, seeds) for name, seeds in series.items()]


def _line_of_series(name: str, seeds: Sequence[Progress]) -> StatusLine:
    """The seeds of a series by state; the other cells are those of the most urgent one, or a mean if all finished."""
    states = [seed.status for seed in seeds]
    status = min(states, key=_URGENCY.index)
    first = next(seed for seed in seeds if seed.status == status)
    if status == "finished":
        values = [seed.value for seed in seeds if seed.value is not None and seed.metric == first.metric]
        mean = fmean(values) if values else None
        place = (f"{first.step}/{first.steps}", f"{first.epoch:.1f}", "", _shown(first.metric, mean))
    else:
        place = _place(first)
    return StatusLine((name, tallied(Counter(states)), *place, first.reason), status)


def _place(run: Progress) -> tuple[str, str, str, str]:
    left = "" if run.seconds_left is None else duration(run.seconds_left)
    return f"{run.step}/{run.steps}", f"{run.epoch:.1f}", left, _shown(run.metric, run.value)


def duration(seconds: float) -> str:
    """Seconds as `0:01:20`."""
    return str(timedelta(seconds=round(seconds)))


def _shown(metric: str | None, value: float | None) -> str:
    return "" if metric is None or value is None else f"{metric} {value:.4g}"


def _last_evaluation(state: RunState, directory: Path) -> tuple[str | None, float | None]:
    if state.result:
        row = {name: values[-1] for name, values in state.result.evaluations.items()}
    else:
        row = next(iter(_rows(directory / "metrics.csv.partial", 1)), {})
    for name in _SHOWN:
        try:
            if math.isfinite(value := float(row[name])):
                return name, value
        except (KeyError, TypeError, ValueError):
            continue
    return None, None


def _rows(file: Path, count: int) -> list[dict[str, str]]:
    try:
        with open_regular(file) as content:
            lines = (line.decode("utf-8", "replace") for line in content if line.endswith(b"\n"))
            return list(deque(csv.DictReader(lines), maxlen=count))
    except (UserError, OSError, csv.Error):
        return []


def _is_whole(row: dict[str, str]) -> bool:
    """Whether it is neither half-written nor damaged."""
    try:
        return int(row["step"]) >= 0 and all(math.isfinite(float(row[name])) or row[name] == "nan" for name in _SECONDS)
    except (KeyError, TypeError, ValueError):
        return False
