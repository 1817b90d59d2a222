"""The numbers behind the charts of a site: the tables of each run, and the lines that a chart shows."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from resync.papers.paper.paper import Item, Paper
from resync.papers.paper.published import most_certain
from resync.papers.plan.modelled import ModelledTime
from resync.papers.render import style
from resync.papers.render.points import shown_as
from resync.papers.report.content import Content, SeriesName
from resync.runs.metrics.registry import BEST, DRAWN, METRICS, columns
from resync.runs.results.runs import RunResult, RunState
from resync.runs.run import Run
from resync.workers.formulas.periods import Constant

if TYPE_CHECKING:
    import pandas as pd

MOST_POINTS = 400
"""Rows of a table that a chart gets: more than it has room for."""
_DIGITS = 6


def metric_names() -> dict[str, dict[str, str]]:
    """Title and unit of every column that a chart can show."""
    names = dict.fromkeys((*columns("metrics"), *columns("steps")))
    return {name: {"title": METRICS[name].title, "unit": METRICS[name].unit} for name in names}


def run_data(state: RunState, settings: Mapping[str, str], time: ModelledTime | None) -> str:
    """The script with the numbers of a run. A page that is read from a file system cannot load JSON."""
    result = state.result
    content = {
        "label": state.run.label,
        "seed": state.run.seed,
        "status": state.status,
        "settings": settings,
        "final": {name: shortened(value) for name, value in result.final_values()} if result else {},
        "metrics": _columns(_with_known_times(result.metrics, state.run, time)) if result else {},
        "steps": _columns(result.steps) if result else {},
    }
    return script(state.run.id, content)


def _with_known_times(table: "pd.DataFrame", run: Run, time: ModelledTime | None) -> "pd.DataFrame":
    """The evaluations, of simulated workers with modelled times of training in place of those of the simulation."""
    if run.processes >= run.workers or not {"step", "volume_percent"} <= {*table.columns}:
        return table
    seconds = time.seconds(table["step"], table["volume_percent"]) if time else math.nan
    return table.assign(training_seconds=seconds, communication_seconds=math.nan)


def script(name: str, content: Mapping[str, Any]) -> str:
    """The script with the numbers of a chart, under the name by which it loads them."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return f"resync.loaded({json.dumps(name)},{text});\n"


def _columns(table: "pd.DataFrame") -> dict[str, list[float | int | None]]:
    """The columns that have any value, thinned out to what a chart can show; NaN and infinities are null."""
    rows = np.unique(np.linspace(0, max(len(table) - 1, 0), MOST_POINTS).round().astype(int))[: len(table)]
    shown = table.iloc[rows]
    return {
        str(name): list(map(shortened, values.tolist())) for name, values in shown.items() if np.isfinite(values).any()
    }


def shortened(value: float) -> float | int | None:
    """A number with the digits that a chart can show; None for NaN and infinities."""
    if isinstance(value, int):
        return value
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def item_chart(content: Content, paper: Paper, item: Item) -> dict[str, Any] | None:
    """The chart of a figure whose kind draws curves of training; None for other kinds and without results."""
    shown = lines(content, [(paper.id, *pair) for pair in paper.series_of(item.id, content.scale)])
    curves = paper.item_at(item.id, content.scale).options.curves
    if not curves or not shown:
        return None
    # What is evaluated comes before what is trained on, and both before what is no goal of the training.
    metrics = sorted(curves, key=lambda name: (METRICS[name].better is None, not METRICS[name].evaluated))
    return {"metrics": metrics, "lines": shown}


def run_charts(content: Content, state: RunState) -> list[dict[str, Any]]:
    """The charts of a run: its metric, and its period and learning rate if they change; siblings can be switched on."""
    if not state.result:
        return []
    run = state.run
    rule = run.sync.rule
    varied = [("Period", ("h",))] if rule is not None and not isinstance(rule, Constant) else []
    if state.result.steps["lr"].nunique() > 1:
        varied.append(("Learning rate", ("lr",)))
    siblings = [name for name in content.series if name[:2] == (run.paper, run.experiment) and name[2] != run.series]
    [own, *others] = lines(content, [(run.paper, run.experiment, run.series), *siblings])
    shown = [
        own | {"label": f"{run.label}, seed {run.seed}", "runs": [run.id], "declared": 1},
        *({**one, "off": True} for one in others),
    ]
    return [
        {"title": title, "metrics": metrics, "lines": shown}
        for title, metrics in (("Training and evaluation", (main_metric(state.result),)), *varied)
    ]


def main_metric(result: RunResult) -> str:
    """The metric that says most of a run: the first of those that are best known, otherwise its training loss."""
    known = ("val_top1", "test_bleu", "val_bits_per_character", "val_loss", "train_loss")
    return next(name for name in known if name in result.evaluations)


def lines(content: Content, names: Iterable[SeriesName]) -> list[dict[str, Any]]:
    """A line per series with results, in the colours of the figures, with the values published at this scale."""
    names = list(names)
    looks = style.styles_of(content.series[name][0].run for name in names)
    return [
        {
            "label": content.series[name][0].run.label,
            "color": look.color,
            "dash": list(look.dash[1]),
            "runs": _with_results(content.series[name]),
            "declared": len(content.series[name]),
            "published": _published(content.suite.papers[name[0]], name, content.scale),
        }
        for name, look in zip(names, looks, strict=True)
        if _with_results(content.series[name])
    ]


def _with_results(states: Iterable[RunState]) -> list[str]:
    return [state.run.id for state in states if state.has_ended]


def _published(paper: Paper, name: SeriesName, scale: str) -> Mapping[str, tuple[float, str]]:
    """The published final values of a series, or its best ones, by the columns whose curves they belong to.

    Each with what it is called. Without those that were only recalled, which pages show with their status.
    """
    found_at = [value for value in paper.published if value.scale == scale and value.status != "unverified"]
    known = [value for value in found_at if value.value is not None]
    shown: dict[str, tuple[float, str]] = {}
    for metric in DRAWN:
        for column in (metric, f"best_{metric}") if metric in BEST else (metric,):
            value = most_certain(known, *name[1:], column)
            if value and value.value is not None:
                shown.setdefault(metric, (value.value, shown_as(value.status)))
    return shown
