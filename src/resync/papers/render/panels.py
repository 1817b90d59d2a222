"""Figures of lines in panels that share an axis: one metric against several quantities, or several against one."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from resync.papers.render.lines import (
    Panel,
    Panels,
    draw_lines,
    end_labels,
    footnote,
    from_where_it_is_seen,
    legend,
    letter,
)
from resync.papers.render.style import COLUMN, MOST_IN_LEGEND, label_y, new_panels

_LOGARITHMIC_FROM = 10
"""Ratio of the longest line to the shortest one from which the horizontal axis is logarithmic."""


def draw(panels: Panels, width: float) -> Figure:
    """The panels, with one legend above them; the axis on which all agree is shared and named once.

    Many lines have their names at their ends instead. A single panel is a column wide.
    """
    if len(panels.panels) == 1:
        width = min(width, COLUMN)
    one_x = len({panel.x_axis for panel in panels.panels}) == 1
    height = 1.75 if one_x else 2.0
    figure, grid = new_panels(width, len(panels.panels), height, sharex=one_x, sharey=not one_x)
    for axes, panel in zip(grid.flat, panels.panels, strict=False):
        draw_lines(axes, panel.lines, panel.limits)
        if one_x:
            axes.set_yscale("log" if panel.log else "linear")  # with the ticks of the scale
        else:
            axes.set_xlabel(panel.x_axis)
            _scale_axis(axes, panel)
        axes.set_ylim(panel.limits)
        if one_x or axes in grid[:, 0]:
            label_y(axes, panel.y_axis, height)
    for axes in grid[-1] if one_x else ():
        axes.set(xlabel=panels.panels[0].x_axis, xlim=(min(map(_begin, panels.panels)), None))
        if any(map(_needs_decades, panels.panels)):
            axes.set_xscale("symlog", linthresh=1)  # with epoch 0
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if len(panels.panels) > 1:
        letter(grid.flat)
    many = max(len(panel.lines) for panel in panels.panels) > MOST_IN_LEGEND
    if not many:
        legend(figure, grid[0, 0], columns=4)
    footnote(figure, panels.setting)
    if many:
        figure.draw_without_rendering()  # which gives the panels their height
        end_labels(grid.flat[len(panels.panels) - 1])
    return figure


def _needs_decades(panel: Panel) -> bool:
    ends = [float(line.x[-1]) for line in panel.lines if line.x.size]
    return bool(ends) and 0 < _LOGARITHMIC_FROM * min(ends) <= max(ends)


def _scale_axis(axes: Axes, panel: Panel) -> None:
    if _needs_decades(panel):
        axes.set_xscale("log", nonpositive="mask")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.set_xlim(left=_begin(panel))


def _begin(panel: Panel) -> float:
    """Where the first line begins to be seen, with room for a marker."""
    seen = [from_where_it_is_seen(line, panel.limits).x for line in panel.lines if line.x.size]
    first, last = min((x[0] for x in seen), default=0.0), max((x[-1] for x in seen), default=0.0)
    return max(0.0, float(first - 0.04 * (last - first)))
