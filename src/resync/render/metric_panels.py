"""Panels of a figure with a common metric axis, each against something else: epochs, time, bytes."""

from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from resync.render.lines import LETTERS, Line, draw_lines, footnote, legend, letter, points_of
from resync.render.points import Point
from resync.render.style import label_y, new_panels

_HEIGHT = 2.0
_LOGARITHMIC_FROM = 10
"""Ratio of the longest line to the shortest one from which the horizontal axis is logarithmic."""


@dataclass(frozen=True)
class MetricPanels:
    """The lines of each panel by the title of its own axis, from left to right."""

    lines: dict[str, list[Line]]
    metric_label: str
    limits: tuple[float, float]
    setting: str

    def points(self) -> Iterator[Point]:
        """Those of every panel."""
        for panel, (x_axis, lines) in zip(LETTERS, self.lines.items(), strict=False):
            yield from points_of(panel, x_axis, self.metric_label, lines)


def draw(panels: MetricPanels, width: float) -> Figure:
    """The panels, with one legend above them."""
    figure, grid = new_panels(width, len(panels.lines), _HEIGHT, sharey=True)
    for axes, (title, lines) in zip(grid.flat, panels.lines.items(), strict=True):
        draw_lines(axes, lines)
        axes.set(xlabel=title, ylim=panels.limits)
        _scale_axis(axes, lines)
    for axes in grid[:, 0]:
        label_y(axes, panels.metric_label, _HEIGHT)
    letter(grid.flat)
    legend(figure, grid[0, 0], columns=4)
    footnote(figure, panels.setting)
    return figure


def _scale_axis(axes: Axes, lines: list[Line]) -> None:
    """A horizontal axis from 0, or a logarithmic one if some lines would be too short to be read beside others."""
    ends = [float(line.x[-1]) for line in lines if line.x.size]
    if ends and 0 < _LOGARITHMIC_FROM * min(ends) <= max(ends):
        axes.set_xscale("log", nonpositive="mask")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.set_xlim(left=0)
