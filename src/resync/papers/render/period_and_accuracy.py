"""Period H of the rounds above validation accuracy, both against epochs."""

from matplotlib.figure import Figure

from resync.papers.render.item import ItemData, require_results
from resync.papers.render.lines import (
    Panel,
    Panels,
    draw_lines,
    draw_periods,
    footnote,
    legend,
    letter,
    limits,
    metric_line,
    period_line,
    setting,
)
from resync.papers.render.options import PeriodAndAccuracy
from resync.papers.render.style import axis_label, new_figure


def prepare(data: ItemData[PeriodAndAccuracy]) -> Panels:
    """H at every sampled step and evaluation; the metric at every evaluation."""
    require_results(data)
    metric = data.options.metric
    lines = [metric_line(data, series, metric, lambda run: run.curve("epoch")) for series in data.drawn]
    periods = Panel("Epoch", "Period H (steps)", [period_line(series) for series in data.drawn])
    return Panels([periods, Panel("Epoch", axis_label(metric), lines, limits(lines))], setting(data, lines))


def draw(panels: Panels, width: float) -> Figure:
    """Two panels with a common epoch axis."""
    figure = new_figure(width, 3.2)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
    periods, metric = panels.panels
    draw_periods(upper, periods.lines)
    draw_lines(lower, metric.lines, metric.limits)
    lower.set(xlabel=metric.x_axis, ylabel=metric.y_axis, ylim=metric.limits)
    lower.set_xlim(left=0)
    letter((upper, lower))
    legend(figure, lower, columns=2)
    footnote(figure, panels.setting)
    return figure
