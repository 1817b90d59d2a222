"""Learning rate, losses and accuracy against epochs."""

from resync.render.item import ItemData, require_results
from resync.render.lines import Panel, Panels, limits, metric_line, setting
from resync.render.options import TrainingCurves
from resync.render.panels import draw as draw
from resync.render.style import axis_label


def prepare(data: ItemData[TrainingCurves]) -> Panels:
    """The metrics at every evaluation, mean over seeds."""
    require_results(data)
    panels = []
    for metric in data.options.metrics:
        lines = [metric_line(data, series, metric, lambda run: run.curve("epoch")) for series in data.drawn]
        log = metric in data.options.log
        panels.append(Panel("Epoch", axis_label(metric), lines, limits(lines, 0.1, log), log))
    return Panels(panels, setting(data, *(panel.lines for panel in panels)))
