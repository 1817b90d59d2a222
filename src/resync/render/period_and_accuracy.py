"""Period H of the rounds above validation accuracy, both against epochs."""

from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.figure import Figure

from resync.render.item import ItemData, require_results
from resync.render.lines import (
    Line,
    draw_lines,
    footnote,
    legend,
    letter,
    limits,
    metric_line,
    period_line,
    points_of,
    setting,
)
from resync.render.options import PeriodAndAccuracy
from resync.render.points import Point
from resync.render.style import axis_label, new_figure, period_axis


@dataclass(frozen=True)
class Panels:
    """The numbers of both panels."""

    periods: list[Line]
    metric: list[Line]
    metric_label: str
    limits: tuple[float, float]
    setting: str

    def points(self) -> Iterator[Point]:
        """Those of both panels."""
        yield from points_of("a", "Epoch", "Period H (steps)", self.periods)
        yield from points_of("b", "Epoch", self.metric_label, self.metric)


def prepare(data: ItemData[PeriodAndAccuracy]) -> Panels:
    """H at every sampled step and evaluation; the metric at every evaluation."""
    require_results(data)
    metric = data.options.metric
    lines = [metric_line(data, series, metric, lambda run: run.curve("epoch")) for series in data.drawn]
    return Panels(
        periods=[period_line(series) for series in data.drawn],
        metric=lines,
        metric_label=axis_label(metric),
        limits=limits(lines),
        setting=setting(data, lines),
    )


def draw(panels: Panels, width: float) -> Figure:
    """Two panels with a common epoch axis."""
    figure = new_figure(width, 3.2)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
    for line in panels.periods:
        upper.plot(line.x, line.y, drawstyle="steps-post", **{**line.style.line, "marker": ""})
    period_axis(upper.yaxis)
    upper.set_ylabel("Period $H$ (steps)")
    draw_lines(lower, panels.metric)
    lower.set(xlabel="Epoch", ylabel=panels.metric_label)
    lower.set_ylim(panels.limits)
    lower.set_xlim(left=0)
    letter((upper, lower))
    legend(figure, lower, columns=2)
    footnote(figure, panels.setting)
    return figure
