"""Accuracy, error or loss against epochs or steps, and against training time."""

import numpy as np
from numpy.typing import ArrayLike

from resync.metrics.columns import CONVERSIONS
from resync.metrics.registry import METRICS
from resync.render.item import ItemData, require_results
from resync.render.lines import Coordinate, Floats, Line, Panel, Panels, limits, metric_line, setting
from resync.render.options import AccuracyCurves
from resync.render.panels import draw as draw
from resync.render.style import axis_label, time_unit
from resync.results.runs import RunResult


def prepare(data: ItemData[AccuracyCurves]) -> Panels:
    """The metric at every evaluation; times are those of the training clock, where a process may simulate workers."""
    require_results(data)
    metric, unit = data.options.metric, data.options.unit
    states = [state for series in data.drawn for state in series.states]
    ends = [float(_training_seconds(state.result)[-1]) for state in states if state.result]
    longest = max((end for end in ends if np.isfinite(end)), default=0.0)
    seconds, time = time_unit(longest)
    simulated = any(
        state.result and not state.result.imported and state.run.processes < state.run.workers for state in states
    )
    clock = "Time of the simulation" if simulated else "Training time"
    factor, offset = CONVERSIONS[METRICS[metric].unit][unit] if unit else (1.0, 0.0)

    over_workers = len(data.options.curves) > 1

    def in_unit(values: ArrayLike) -> Floats:
        return (np.asarray(values, dtype=float) - offset) / factor

    def lines(x: Coordinate) -> list[Line]:
        return [metric_line(data, series, metric, x, in_unit, over_workers) for series in data.drawn]

    by_progress = lines(lambda run: run.metrics[data.options.by])
    by_time = lines(lambda run: _training_seconds(run) / seconds)
    panels = [
        Panel(title, axis_label(metric, unit), found, limits(by_progress))
        for title, found in ((METRICS[data.options.by].title, by_progress), (f"{clock} ({time})", by_time))
    ]
    return Panels(panels, f"{setting(data, by_progress)} · time without evaluation")


def _training_seconds(run: RunResult) -> Floats:
    return np.asarray(run.curve("training_seconds"), dtype=float)
