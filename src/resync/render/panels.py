"""Figures of lines in panels that share an axis: one metric against several quantities, or several against one."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from resync.render.lines import Panel, Panels, draw_lines, footnote, legend, letter
from resync.render.style import label_y, new_panels

_LOGARITHMIC_FROM = 10
"""Ratio of the longest line to the shortest one from which the horizontal axis is logarithmic."""


def draw(panels: Panels, width: float) -> Figure:
    """The panels, with one legend above them; the axis on which all agree is shared and named once."""
    one_x = len({panel.x_axis for panel in panels.panels}) == 1
    height = 1.75 if one_x else 2.0
    figure, grid = new_panels(width, len(panels.panels), height, sharex=one_x, sharey=not one_x)
    for axes, panel in zip(grid.flat, panels.panels, strict=False):
        draw_lines(axes, panel.lines)
        if one_x:
            axes.set_yscale("log" if panel.log else "linear")  # with the ticks of the scale
        else:
            axes.set_xlabel(panel.x_axis)
            _scale_axis(axes, panel)
        axes.set_ylim(panel.limits)
        if one_x or axes in grid[:, 0]:
            label_y(axes, panel.y_axis, height)
    for axes in grid[-1] if one_x else ():
        axes.set(xlabel=panels.panels[0].x_axis, xlim=(0, None))
    letter(grid.flat)
    legend(figure, grid[0, 0], columns=4)
    footnote(figure, panels.setting)
    return figure


def _scale_axis(axes: Axes, panel: Panel) -> None:
    ends = [float(line.x[-1]) for line in panel.lines if line.x.size]
    if ends and 0 < _LOGARITHMIC_FROM * min(ends) <= max(ends):
        axes.set_xscale("log", nonpositive="mask")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.set_xlim(left=0)
