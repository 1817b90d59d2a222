"""A metric against the bytes that a worker has sent, against modelled time, and against steps."""

import numpy as np

from resync.papers.render import time_axis
from resync.papers.render.item import ItemData, Series, require_results
from resync.papers.render.lines import Coordinate, Line, Panel, Panels, limits, metric_line, setting
from resync.papers.render.options import CostCurves
from resync.papers.render.panels import draw as draw
from resync.papers.render.style import axis_label

MEGABYTE = 1e6


def prepare(data: ItemData[CostCurves]) -> Panels:
    """The metric at every evaluation, mean over seeds."""
    require_results(data)
    metric, y_axis = data.options.metric, axis_label(data.options.metric)

    def line(series: Series, x: Coordinate) -> Line:
        return metric_line(data, series, metric, x)

    by_step = [line(series, lambda run: run.curve("step")) for series in data.drawn]
    by_bytes = [line(series, lambda run: np.asarray(run.curve("bytes_sent")) / MEGABYTE) for series in data.drawn]
    by_time = time_axis.time_panel(data, y_axis, line, by_step)
    panels = [
        Panel("Sent by a worker (MB)", y_axis, by_bytes, limits(by_step)),
        *filter(None, [by_time]),
        Panel("Step", y_axis, by_step, limits(by_step)),
    ]
    return Panels(panels, f"{setting(data, by_step)} · {time_axis.note(data)}")
