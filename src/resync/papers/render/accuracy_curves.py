"""Accuracy, error or loss against epochs or steps, and against training time where that is known."""

import numpy as np
from numpy.typing import ArrayLike

from resync.papers.render import time_axis
from resync.papers.render.item import ItemData, Series, require_results
from resync.papers.render.lines import Coordinate, Floats, Line, Panel, Panels, limits, metric_line, setting
from resync.papers.render.options import AccuracyCurves
from resync.papers.render.panels import draw as draw
from resync.papers.render.style import axis_label
from resync.runs.metrics.columns import CONVERSIONS
from resync.runs.metrics.registry import METRICS


def prepare(data: ItemData[AccuracyCurves]) -> Panels:
    """The metric at every evaluation, mean over seeds."""
    require_results(data)
    metric, unit = data.options.metric, data.options.unit
    factor, offset = CONVERSIONS[METRICS[metric].unit][unit] if unit else (1.0, 0.0)
    over_workers = len(data.options.curves) > 1
    y_axis = axis_label(metric, unit)

    def in_unit(values: ArrayLike) -> Floats:
        return (np.asarray(values, dtype=float) - offset) / factor

    def line(series: Series, x: Coordinate) -> Line:
        return metric_line(data, series, metric, x, in_unit, over_workers)

    lines = [line(series, lambda run: run.curve(data.options.by)) for series in data.drawn]
    panels = [Panel(METRICS[data.options.by].title, y_axis, lines, limits(lines))]
    by_time = time_axis.time_panel(data, y_axis, line, lines)
    below = setting(data, lines)
    return Panels([*panels, by_time], f"{below} · {time_axis.note(data)}") if by_time else Panels(panels, below)
