"""Learning rate, losses and accuracy against epochs."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from resync.render.item import ItemData, require_results
from resync.render.lines import Line, draw_lines, footnote, legend, letter, limits, mean_over_seeds, setting
from resync.render.options import training_curves
from resync.render.style import DOUBLE_COLUMN, axis_label, new_figure

_ROWS_AND_COLUMNS = {2: (1, 2), 3: (1, 3), 4: (2, 2)}


@dataclass(frozen=True)
class Panels:
    """The lines of each panel by axis label, in the order of the panels."""

    lines: dict[str, list[Line]]
    cut: float
    setting: str


def prepare(data: ItemData[training_curves.TrainingCurves]) -> Panels:
    """The metrics at every evaluation, mean over seeds."""
    require_results(data)

    def lines(metric: str) -> list[Line]:
        return [
            mean_over_seeds(series, lambda run: run.curve("epoch"), lambda run: run.curve(metric), data.options.band)
            for series in data.series
        ]

    by_label = {axis_label(metric): lines(metric) for metric in data.options.metrics}
    return Panels(by_label, data.options.cut, setting(data, data.options.band))


def draw(panels: Panels) -> Figure:
    """Panels with a common epoch axis."""
    rows, columns = _ROWS_AND_COLUMNS[len(panels.lines)]
    figure = new_figure(DOUBLE_COLUMN, 0.7 + 1.8 * rows)
    grid = np.ravel(figure.subplots(rows, columns, sharex=True))
    for axes, (label, lines) in zip(grid, panels.lines.items(), strict=True):
        draw_lines(axes, lines)
        axes.set_ylabel(label)
        axes.set_ylim(limits(lines, panels.cut))
    for axes in grid[-columns:]:
        axes.set(xlabel="Epoch", xlim=(0, None))
    letter(grid)
    legend(figure, grid[0], columns=4)
    footnote(figure, panels.setting)
    return figure
