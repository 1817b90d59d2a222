"""The learning rate above the period H of every round that follows from it: a period rule without any training."""

import numpy as np
from matplotlib.figure import Figure

from resync.papers.plan import volume
from resync.papers.render.item import ItemData, Series
from resync.papers.render.lines import (
    Line,
    Panel,
    Panels,
    draw_periods,
    footnote,
    ignore_truncated_rounds,
    legend,
    letter,
)
from resync.papers.render.options import PeriodSchedule
from resync.papers.render.style import GREY, new_figure
from resync.runs.exchanges import round_lengths

LR_POINTS = 400


def prepare(data: ItemData[PeriodSchedule]) -> Panels:
    """H of every series where it changes, exactly as in training; labels end with the communication volume.

    A learning rate that several series share appears once.
    """
    rates: list[Line] = []
    for series in data.series:
        run = series.states[0].run  # neither the learning rate nor the period depends on the seed
        steps = np.unique(np.linspace(0, run.total_steps - 1, LR_POINTS).round().astype(int))
        lrs = np.array([run.lr(int(step)) for step in steps])
        line = Line(series.label, series.style, steps / run.steps_per_epoch, lrs, lrs, lrs)
        if not any(np.array_equal(line.y, other.y) and np.array_equal(line.x, other.x) for other in rates):
            rates.append(line)
    periods = Panel("Epoch", "Period H (steps)", [_period_line(series) for series in data.series])
    panels = [Panel("Epoch", "Learning rate", rates), periods]
    return Panels(panels, f"{data.setting} · computed · percentages: communication volume")


def draw(panels: Panels, width: float) -> Figure:
    """Two panels with a common epoch axis."""
    figure = new_figure(width, 3.0)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
    rates, periods = panels.panels
    for line in rates.lines:  # grey, because several series may share it
        upper.plot(line.x, line.y, color=GREY, linestyle=line.style.dash if len(rates.lines) > 1 else "-")
    draw_periods(lower, periods.lines)
    upper.set_ylabel("Learning rate")
    upper.set_ylim(bottom=0)
    lower.set_xlabel("Epoch")
    lower.set_xlim(left=0)
    letter((upper, lower))
    legend(figure, lower, columns=2)
    footnote(figure, panels.setting)
    return figure


def _period_line(series: Series) -> Line:
    run = series.states[0].run
    rounds = np.array(round_lengths(run), dtype=float)
    starts = np.append(0.0, np.cumsum(rounds)) / run.steps_per_epoch
    lengths = ignore_truncated_rounds(rounds, np.arange(len(rounds), dtype=float))
    label = f"{series.label}: {volume(run).volume_percent:.1f} %"
    h = np.append(lengths, lengths[-1:])  # the last round lasts until the end
    kept = np.append(True, h[1:] != h[:-1])  # tens of thousands of rounds have a few lengths
    kept[-1] = True
    starts, h = starts[kept], h[kept]
    return Line(label, series.style, starts, h, h, h)
