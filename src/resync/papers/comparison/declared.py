"""The paper that trains an algorithm on the standing tasks: pilots at several learning rates, then at the best one."""

import math
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from resync.base.files import write_text
from resync.base.settings.loader import dump
from resync.base.settings.units import LEARNING_RATE, WARMUP_LEARNING_RATE, Unit, converted
from resync.papers.comparison.tasks import SCALES, TASKS
from resync.papers.paper import Suite
from resync.runs.results.runs import RunState, state_of
from resync.runs.run import Run
from resync.runs.run.run import RunLayer
from resync.runs.run.training import RunSettings

METRIC = "val_loss"
"""What decides which learning rate is best, and what is compared: of the averaged model, at the end."""
_FACTORS = {"lr_half": 0.5, "lr_same": 1.0, "lr_twice": 2.0, "lr_fourfold": 4.0}
"""The pilots' learning rates over that of the first series of the task, by the names of their series."""
_SEEDS = {"smoke": [100], "mini": [100, 101]}
"""Those of pilots, which confirm nothing."""


def paper_of(algorithm: str) -> str:
    """The name of the paper, a folder in paper_configs."""
    return f"compare_{algorithm}"


def write_pilots(suite: Suite, algorithm: str, configs: Path) -> bool:
    """Write the paper with its pilots and return True, unless it is there: options and rates may have been changed."""
    folder = configs / paper_of(algorithm)
    if (folder / "paper.yaml").exists():
        return False
    pilots = [f"{task}_pilot" for task in TASKS]
    table = {"id": "pilots", "kind": "metrics_table", "title": f"{algorithm}: pilots of the learning rate",
             "series": pilots, "options": {"metrics": [METRIC]}}  # fmt: skip
    times = {"experiments": pilots, "network": "ethernet_10g", "compute": 1e-3}
    paper = {"title": f"{algorithm} beside other algorithms", "tables": [table], "times": [times]}
    for task in TASKS:
        write_text(folder / f"experiments/{task}_pilot.yaml", _pilots(suite, algorithm, task))
    write_text(folder / "paper.yaml", f"# `times` has the network and the seconds of a step.\n{dump(paper)}")
    return True


def write_confirming(suite: Suite, algorithm: str, configs: Path, results: Path) -> None:
    """Write the experiments at the best learning rates, for the scales at which all pilots have ended."""
    pilots = {scale: pilots_of(suite, algorithm, scale, results) for scale in SCALES}
    for task, (paper, (first, *_), _) in TASKS.items():
        scales, grid = {}, []
        for scale in SCALES:
            series = pilots[scale][task]
            grid = [f"{task}_pilot/{states[0].run.series}" for states in series]
            if all(state.has_ended for states in series for state in states):
                run = best_of(series)[0].run
                seeds = [other.seed for other in suite.runs(paper, scale, *first.split("/"))]
                scales[scale] = _settings(run) | {"sync": _plain(run, "sync"), "seeds": seeds}
        content = {
            "expect": f"{algorithm} at the learning rate that is best in {task}_pilot.",
            "tuned": {"metric": METRIC, "grid": {algorithm: grid}},
            "base": {}, "series": {algorithm: {"label": algorithm}}, "scales": scales,
        }  # fmt: skip
        head = f"# Written by `resync compare` from {task}_pilot.yaml and its results: change that file.\n"
        write_text(configs / paper_of(algorithm) / f"experiments/{task}.yaml", head + dump(content))


def pilots_of(suite: Suite, algorithm: str, scale: str, results: Path) -> dict[str, list[list[RunState]]]:
    """By task the states of the pilots of each series."""
    pilots = {}
    for task in TASKS:
        runs = suite.runs(paper_of(algorithm), scale, f"{task}_pilot")
        pilots[task] = [[state_of(run, results) for run in of_series]
                       for _, of_series in groupby(runs, key=lambda run: run.series)]  # fmt: skip
    return pilots


def best_of(pilots: list[list[RunState]]) -> list[RunState]:
    """The series whose mean loss at the end is smallest; one of which a run diverged comes last."""

    def loss(states: list[RunState]) -> float:
        mean = fmean(state.result.final(METRIC) if state.result else math.nan for state in states)
        return mean if math.isfinite(mean) else math.inf

    return min(pilots, key=loss)


def _pilots(suite: Suite, algorithm: str, task: str) -> str:
    paper, (first, *_), _ = TASKS[task]
    scales = {}
    for scale in SCALES:
        run = suite.runs(paper, scale, *first.split("/"))[0]
        rates = {series: {"schedule": _schedule(run, factor)} for series, factor in _FACTORS.items()}
        scales[scale] = _settings(run) | {"seeds": _SEEDS[scale], "series": rates}
    content = {
        "expect": f"The learning rate at which {algorithm} ends best, on seeds that confirm nothing.",
        "base": {"sync": {"name": algorithm}},
        "series": {series: {"label": f"{algorithm}, {factor:g} times the rate"} for series, factor in _FACTORS.items()},
        "scales": scales,
    }
    head = f"Options of {algorithm} are in `base`, learning rates at the end. All else is as in {paper}/{first}."
    return f"# {head}\n{dump(content)}"


def _settings(run: Run) -> dict[str, Any]:
    """What decides how a run is trained, but its algorithm and seed; settings with their usual value are left out."""
    fields = RunLayer.model_fields
    kept = [name for name in RunSettings.model_fields if getattr(run, name) != fields[name].default]
    return {name: _plain(run, name) for name in kept if name != "sync"}


def _plain(run: Run, name: str) -> Any:
    return run.model_dump(mode="json", exclude_none=True, include={name})[name]


def _schedule(run: Run, factor: float) -> Any:
    def scaled(unit: Unit, number: float, _: object) -> float:
        return float(f"{factor * number:.4g}") if unit in (LEARNING_RATE, WARMUP_LEARNING_RATE) else number

    schedule = converted(run.schedule, type(run.schedule), scaled)
    return schedule.model_dump(mode="json", exclude_none=True)
