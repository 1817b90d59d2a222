"""Validation loss against simulated time."""

from dataclasses import replace
from itertools import groupby

from resync.papers.render.item import ItemData, require_results
from resync.papers.render.lines import Panel, Panels, limits, metric_line, setting
from resync.papers.render.options import TimeCurves
from resync.papers.render.panels import draw as draw
from resync.papers.render.style import axis_label


def prepare(data: ItemData[TimeCurves]) -> Panels:
    """The loss at every evaluation, mean over seeds, a panel for each experiment; a label has one style in all."""
    require_results(data)
    panels = []
    styles = {series.label: series.style for series in reversed(data.drawn)}
    drawn = [replace(series, style=styles[series.label]) for series in data.drawn]
    for experiment, group in groupby(drawn, lambda series: series.name[0]):
        lines = [metric_line(data, series, "val_loss", lambda run: run.curve("virtual_seconds")) for series in group]
        axis = f"{axis_label('virtual_seconds')}: {experiment.replace('_', ' ')}"
        panels.append(Panel(axis, axis_label("val_loss"), lines, limits(lines, 0.1)))
    return Panels(panels, setting(data, *(panel.lines for panel in panels)))
