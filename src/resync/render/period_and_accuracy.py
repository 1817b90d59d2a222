"""Period H of the rounds above validation accuracy, both against epochs."""

from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from resync.render.item import ItemData, require_results
from resync.render.lines import (
    Line,
    draw_lines,
    footnote,
    legend,
    letter,
    limits,
    mean_over_seeds,
    period_line,
    setting,
    with_published,
)
from resync.render.options import period_and_accuracy
from resync.render.style import COLUMN, axis_label, new_figure


@dataclass(frozen=True)
class Panels:
    """The numbers of both panels."""

    periods: list[Line]
    metric: list[Line]
    metric_label: str
    limits: tuple[float, float]
    setting: str


def prepare(data: ItemData[period_and_accuracy.PeriodAndAccuracy]) -> Panels:
    """H at every sampled step and evaluation; the metric at every evaluation."""
    require_results(data)
    metric, band = data.options.metric, data.options.band
    lines = [
        with_published(
            data,
            mean_over_seeds(series, lambda run: run.metrics["epoch"], lambda run: run.curve(metric), band),
            series,
            metric,
        )
        for series in data.series
    ]
    return Panels(
        periods=[period_line(series) for series in data.series],
        metric=lines,
        metric_label=axis_label(metric),
        limits=limits(lines, data.options.cut),
        setting=setting(data, data.options.band),
    )


def draw(panels: Panels) -> Figure:
    """Two panels with a common epoch axis."""
    figure = new_figure(COLUMN, 3.5)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
    for line in panels.periods:
        upper.plot(line.x, line.y, drawstyle="steps-post", **{**line.style.line, "marker": ""})
    upper.set_yscale("log", base=2)
    upper.yaxis.set_major_formatter(FuncFormatter(lambda h, _: f"{h:g}"))
    upper.set_ylabel("Period $H$ (steps)")
    draw_lines(lower, panels.metric)
    lower.set(xlabel="Epoch", ylabel=panels.metric_label)
    lower.set_ylim(panels.limits)
    lower.set_xlim(left=0)
    letter((upper, lower))
    legend(figure, lower, columns=2)
    footnote(figure, panels.setting)
    return figure
