"""Learning rate, losses and accuracy against epochs."""

from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.figure import Figure

from resync.render.item import ItemData, require_results
from resync.render.lines import (
    LETTERS,
    Line,
    draw_lines,
    footnote,
    legend,
    letter,
    limits,
    metric_line,
    points_of,
    setting,
)
from resync.render.options import TrainingCurves
from resync.render.points import Point
from resync.render.style import axis_label, label_y, new_panels

_HEIGHT = 1.75


@dataclass(frozen=True)
class Panels:
    """The lines of each panel by axis label, in the order of the panels, and the labels of logarithmic axes."""

    lines: dict[str, list[Line]]
    log: set[str]
    setting: str

    def points(self) -> Iterator[Point]:
        """Those of every panel."""
        for panel, (label, lines) in zip(LETTERS, self.lines.items(), strict=False):
            yield from points_of(panel, "Epoch", label, lines)


def prepare(data: ItemData[TrainingCurves]) -> Panels:
    """The metrics at every evaluation, mean over seeds."""
    require_results(data)

    def lines(metric: str) -> list[Line]:
        return [metric_line(data, series, metric, lambda run: run.curve("epoch")) for series in data.drawn]

    by_label = {axis_label(metric): lines(metric) for metric in data.options.metrics}
    log = {axis_label(metric) for metric in data.options.log}
    return Panels(by_label, log, setting(data, *by_label.values()))


def draw(panels: Panels, width: float) -> Figure:
    """Panels with a common epoch axis."""
    figure, grid = new_panels(width, len(panels.lines), _HEIGHT, sharex=True)
    for axes, (label, lines) in zip(grid.flat, panels.lines.items(), strict=False):
        draw_lines(axes, lines)
        label_y(axes, label, _HEIGHT)
        log = label in panels.log
        axes.set_yscale("log" if log else "linear")
        axes.set_ylim(limits(lines, 0.1, log))
    for axes in grid[-1]:
        axes.set(xlabel="Epoch", xlim=(0, None))
    letter(grid.flat)
    legend(figure, grid[0, 0], columns=4)
    footnote(figure, panels.setting)
    return figure
