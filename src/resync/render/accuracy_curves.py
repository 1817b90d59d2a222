"""Accuracy, error or loss against epochs or steps, and against training time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from resync.config.columns import CONVERSIONS
from resync.config.metrics import METRICS, extremes_of_workers
from resync.render.item import ItemData, require_results
from resync.render.lines import (
    Coordinate,
    Floats,
    Line,
    draw_lines,
    footnote,
    legend,
    letter,
    limits,
    mean_over_seeds,
    points_of,
    setting,
    with_published,
)
from resync.render.options import accuracy_curves
from resync.render.points import Point
from resync.render.style import axis_label, new_panels, time_unit
from resync.results.runs import RunResult


@dataclass(frozen=True)
class Panels:
    """The numbers of both panels."""

    by_progress: list[Line]
    by_time: list[Line]
    time_unit: str
    progress_label: str
    metric_label: str
    limits: tuple[float, float]
    setting: str

    @property
    def time_label(self) -> str:
        return f"Training time ({self.time_unit})"

    def points(self) -> Iterator[Point]:
        """Those of both panels."""
        yield from points_of("a", self.progress_label, self.metric_label, self.by_progress)
        yield from points_of("b", self.time_label, self.metric_label, self.by_time)


def prepare(data: ItemData[accuracy_curves.AccuracyCurves]) -> Panels:
    """The metric at every evaluation; times are those of the training clock."""
    require_results(data)
    metric, band, unit = data.options.metric, data.options.band, data.options.unit
    states = [state for series in data.series for state in series.states]
    ends = [float(_training_seconds(state.result)[-1]) for state in states if state.result]
    longest = max((end for end in ends if np.isfinite(end)), default=0.0)
    seconds, time = time_unit(longest)

    def drawn(name: str) -> Coordinate:
        return lambda run: _in_unit(run.curve(name), METRICS[name].unit, unit)

    names = extremes_of_workers(metric) if band == "workers" else None
    extremes = (drawn(names[0]), drawn(names[1])) if names else None

    def lines(x: Coordinate) -> list[Line]:
        averaged = [mean_over_seeds(series, x, drawn(metric), band, extremes) for series in data.series]
        unit_of = METRICS[metric].unit
        return [
            with_published(data, line, series, metric, lambda value: _in_unit(value, unit_of, unit))
            for line, series in zip(averaged, data.series, strict=True)
        ]

    by_progress = lines(lambda run: run.metrics[data.options.by])
    return Panels(
        by_progress=by_progress,
        by_time=lines(lambda run: _training_seconds(run) / seconds),
        time_unit=time,
        progress_label=METRICS[data.options.by].title,
        metric_label=axis_label(metric, unit),
        limits=limits(by_progress, data.options.cut),
        setting=f"{setting(data, band, by_progress)} · time without evaluation",
    )


def draw(panels: Panels, width: float) -> Figure:
    """Two panels with a common metric axis."""
    figure, grid = new_panels(width, 2, 2.0, sharey=True)
    by_progress, by_time = grid.flat
    draw_lines(by_progress, panels.by_progress)
    draw_lines(by_time, panels.by_time)
    by_progress.set_xlabel(panels.progress_label)
    by_time.set_xlabel(panels.time_label)
    for axes in grid[:, 0]:
        axes.set_ylabel(panels.metric_label)
    for axes in grid.flat:
        axes.set(xlim=(0, None), ylim=panels.limits)
    letter(grid.flat)
    legend(figure, by_progress, columns=4)
    footnote(figure, panels.setting)
    return figure


def _in_unit(values: ArrayLike, ours: str, unit: str | None) -> Floats:
    """Values of our unit in the one that is drawn."""
    factor, offset = CONVERSIONS[ours][unit] if unit else (1.0, 0.0)
    return (np.asarray(values, dtype=float) - offset) / factor


def _training_seconds(run: RunResult) -> Floats:
    return np.asarray(run.curve("training_seconds"), dtype=float)
