"""The jobs of a workflow: how many are done, which ones run and how far they are, which ones failed and why."""

import os
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from resync.base.files import lines_of
from resync.base.settings.errors import ConfigError
from resync.base.text_tables import one_line
from resync.runs.results.status import Progress, duration, progress
from resync.runs.run import Run

_FEW = 5
"""Finished jobs required before a remaining time is shown."""
_TAIL_BYTES = 1 << 16
_RESTARTED = re.compile(r"resync: .*, restart \d+ of \d+$")
_FAILED = re.compile(r"resync: \S+: failed: (.*)")
_ERROR = re.compile(r"resync: error: (?:not tried again: )?(.*)")
_STOPPED = re.compile(r"resync: interrupted$|.*: stops after step \d+ of \d+ with a checkpoint$")


@dataclass
class Job:
    """A job of the workflow: its number, its rule, what it makes, its log, and the folder of the run that it trains."""

    number: int
    rule: str
    output: str
    log: Path | None = None
    folder: Path | None = None
    run: Run | None = None

    @property
    def name(self) -> str:
        if self.folder is not None:
            return "/".join(self.folder.parts[-4:])
        return f"{self.rule} {self.output}".strip()


@dataclass
class Board:
    """What is known of the jobs; `clock` gives seconds."""

    results: Path = Path("results")
    clock: Callable[[], float] = time.monotonic
    total: int = 0
    done: int = 0
    running: dict[int, Job] = field(default_factory=dict)
    failed: dict[int, tuple[Job, str]] = field(default_factory=dict)
    _known: dict[int, Job] = field(default_factory=dict)
    _failures: Counter[int] = field(default_factory=Counter)
    _started: float | None = None

    def begins(self, total: int) -> None:
        self.total, self._started = total, self.clock()

    def starts(self, job: Job) -> None:
        self.running[job.number] = self._known[job.number] = job

    def ends(self, number: int) -> None:
        self.running.pop(number, None)
        self.failed.pop(number, None)
        self.done += 1

    def fails(self, number: int) -> str | None:
        """A job ends without its files: a line that says why, or None if it failed in the same way before."""
        job = self.running.pop(number, None) or self._known.get(number)
        if job is None:
            return None
        self._failures[number] += 1
        reason, before = _reason(job, self._failures[number]), self.failed.get(number)
        self.failed[number] = job, reason
        return None if before and before[1] == reason else f"failed: {job.name}: {reason}"

    def again(self, number: int) -> str | None:
        job = self._known.get(number)
        return f"tried again: {job.name}" if job else None

    @property
    def seconds(self) -> float:
        return 0.0 if self._started is None else self.clock() - self._started

    @property
    def seconds_left(self) -> float | None:
        """Time of the remaining jobs if they take as long as those that are done; None if these are too few."""
        rest = self.total - self.done
        return self.seconds * rest / self.done if self.done >= _FEW else None

    def places(self) -> list[tuple[Job, Progress | None]]:
        """The running jobs, those that train first, with the progress of their runs as far as it can be read."""
        jobs = sorted(list(self.running.values()), key=lambda job: (job.folder is None, job.number))
        return [(job, self._progress(job)) for job in jobs]

    def totals(self) -> str:
        """`12 of 240 jobs, 1 failed, 0:01:20, about 0:25:00 left`."""
        parts = [f"{self.done} of {self.total} jobs"]
        if self.failed:
            parts.append(f"{len(self.failed)} failed")
        parts.append(duration(self.seconds))
        if self.done < self.total and (left := self.seconds_left) is not None:
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)

    def sentence(self) -> str:
        places = [place_of(job, run) for job, run in self.places()]
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        return f"{self.totals()}; running: {'; '.join(places[:3])}{more}" if places else self.totals()

    def _progress(self, job: Job) -> Progress | None:
        if job.folder is None:
            return None
        try:
            job.run = job.run or Run.from_file(job.folder / "run.yaml")
            return progress(job.run, self.results)
        except (ConfigError, OSError):
            return None


def _reason(job: Job, attempt: int) -> str:
    log = job.folder / f"train.{attempt}.log" if job.folder else job.log
    lines = [line for line in _tail(log) if line.strip()]
    lines = lines[max((number for number, line in enumerate(lines) if _RESTARTED.match(line)), default=-1) + 1 :]
    failed, errors = ([match[1] for match in map(form.match, lines) if match] for form in (_FAILED, _ERROR))
    if failed or errors:
        reason = failed[-1] if failed else errors[0]
    elif any(map(_STOPPED.match, lines)):
        reason = "interrupted: the next start continues"
    elif lines and (job.folder is None or "Traceback (most recent call last):" in lines):
        reason = lines[-1]
    else:
        reason = "killed, or ended without a message"
    return f"{one_line(reason)} (log: {log})" if log else one_line(reason)


def place_of(job: Job, run: Progress | None) -> str:
    """Where a running job is: `qsr/vit_b16_b4096/h4/seed0 step 1200/3900, 0:02:10 left, val_top1 46.31`."""
    if run is None or not run.step:
        return job.name
    step, _, *rest = cells_of(run)
    return ", ".join([f"{job.name} {step}", *filter(None, rest)])


def cells_of(run: Progress) -> tuple[str, str, str, str]:
    """Step, share, time left and last value of a run."""
    share = f"{100 * run.step / run.steps:.0f} %"
    left = "" if run.seconds_left is None else f"{duration(run.seconds_left)} left"
    value = "" if run.value is None else f"{run.metric} {run.value:.4g}"
    return f"step {run.step}/{run.steps}", share, left, value


def _tail(log: Path | None) -> list[str]:
    try:
        with open(log or "", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return lines_of(file.read().decode("utf-8", "replace"))
    except OSError:
        return []
