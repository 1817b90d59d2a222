"""Panels of a figure with a common metric axis, each against something else: epochs, time, bytes."""

from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.figure import Figure

from resync.render.lines import LETTERS, Line, draw_lines, footnote, legend, letter, points_of
from resync.render.points import Point
from resync.render.style import new_panels


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
    figure, grid = new_panels(width, len(panels.lines), 2.0, sharey=True)
    for axes, (title, lines) in zip(grid.flat, panels.lines.items(), strict=True):
        draw_lines(axes, lines)
        axes.set(xlabel=title, xlim=(0, None), ylim=panels.limits)
    for axes in grid[:, 0]:
        axes.set_ylabel(panels.metric_label)
    letter(grid.flat)
    legend(figure, grid[0, 0], columns=4)
    footnote(figure, panels.setting)
    return figure
