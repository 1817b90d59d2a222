"""What rehearsals have measured: the shapes of jobs, their rates, and the hours that follow for a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resync.base.files import read_json
from resync.runs.metrics.registry import SECONDS_PER_HOUR
from resync.runs.run import Run
from resync.runs.run.evaluated import evaluation_steps

NAME = "rehearsal"
"""The folder of a scale in which runs are rehearsed, and the stem of what is said about them."""
FAILURES = "failures"
"""The file in the folder of a shape with the number of its rehearsals that have failed, each of which repeats it."""


def shape_of(run: Run) -> dict[str, Any]:
    """What the memory and the time of a step of a run follow from."""
    resources, options = run.resources, run.data.options
    return {
        "model": run.model.model_dump(mode="json"),
        "data": run.data.name,
        "reader": options.get("format"),
        "batch_per_process": run.batch_size // run.processes,
        "forward_batch": run.forward_batch_size,
        "precision": run.precision,
        "compile": run.compile,
        "engine": run.engine.model_dump(mode="json"),
        "algorithm": run.sync.name,
        "optimizer": run.optimizer.name,
        "launcher": resources.launcher,
        "nodes": resources.nodes,
        "gpus_per_node": resources.gpus_per_node,
        "cpus": resources.cpus,
        "processes": run.processes,
    }


def shape_id(run: Run) -> str:
    """A short name of its shape."""
    return hashlib.sha256(json.dumps(shape_of(run), sort_keys=True).encode()).hexdigest()[:12]


def shapes(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs of every shape, by its id. A search, and a model that is only evaluated, are no trainings."""
    by_shape: dict[str, list[Run]] = {}
    for run in runs:
        if run.epochs and not run.search:
            by_shape.setdefault(shape_id(run), []).append(run)
    return by_shape


def failures(folder: Path) -> int:
    """How often the rehearsal in a folder has failed."""
    file = folder / FAILURES
    return int(file.read_text(encoding="utf-8")) if file.exists() else 0


@dataclass(frozen=True)
class Rates:
    """The measured seconds of a shape.

    Attributes:
        step: median of a step, with communication where that overlaps with it, and without waiting for data.
        data: median of waiting for data.
        communication: of a byte that a worker sends; 0 where communication overlaps.
        overlaps: whether communication overlaps.
        evaluation: of an evaluation; None on noise, which has fewer samples.
        checkpoint: of a checkpoint.
    """

    step: float
    data: float
    communication: float
    overlaps: bool
    evaluation: float | None
    checkpoint: float

    @property
    def source(self) -> str:
        """Where they come from, in words."""
        return "rehearsal on noise" if self.evaluation is None else "rehearsal"

    def hours(self, run: Run, bytes_per_worker: float) -> float:
        """Expected hours of a run, without the start of its processes."""
        steps = run.total_steps * (self.step + self.data) + bytes_per_worker * self.communication
        seconds = steps + len(evaluation_steps(run)) * (self.evaluation or 0.0)
        every = run.checkpoint.every_minutes
        return seconds * (1 + (self.checkpoint / (60 * every) if every else 0)) / SECONDS_PER_HOUR


def rates_of(results: Path, scale: str) -> Mapping[str, Rates]:
    """The rates of a scale's rehearsals by shape; none if nothing has been rehearsed."""
    try:
        rehearsed = read_json(results / scale / f"{NAME}.json")
    except FileNotFoundError:
        return {}
    return {entry["shape"]: Rates(**entry["rates"]) for entry in rehearsed["shapes"] if entry["rates"]}


@dataclass(frozen=True)
class Computing:
    """The rehearsed time of a local step of one worker.

    Attributes:
        seconds: of computing and waiting for data; of workers that a process computes in turn, one's share.
        with_messages: whether they include messages that overlap, because no shape without these was rehearsed.
        run: the series whose shape it is.
    """

    seconds: float
    with_messages: bool
    run: str

    def __str__(self) -> str:
        messages = ", with messages that overlap with it" if self.with_messages else ""
        return f"rehearsed as {self.run}: a step computes {self.seconds:.4g} s{messages}"


def computing(runs: Sequence[Run], rates: Mapping[str, Rates]) -> Computing | None:
    """The time of a step of runs that compute the same, from a shape whose messages do not overlap if there is one."""
    known = [
        Computing((rated.step + rated.data) * run.processes / max(run.workers, run.processes), rated.overlaps, run.id)
        for run in runs
        if (rated := rates.get(shape_id(run)))
    ]
    return min(known, key=lambda computed: (computed.with_messages, computed.seconds), default=None)
