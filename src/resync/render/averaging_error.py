"""Averaging error of gossip topologies, without training: the paper's analysis behind its choice of topology."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from resync.plan.averaging_error import averaging_errors, mixes_of
from resync.render.item import ItemData
from resync.render.lines import Line, draw_lines, footnote, legend
from resync.render.options import averaging_error
from resync.render.style import COLUMN, GREY, new_figure


@dataclass(frozen=True)
class Errors:
    """One line per series, and (mixing steps, value, colour) of each published value."""

    lines: list[Line]
    published: list[tuple[int, float, str]]
    setting: str


def prepare(data: ItemData[averaging_error.AveragingError]) -> Errors:
    """The errors of every series, up to twice the number of mixing steps that the exponential graph needs."""
    lines, published = [], []
    for series in data.series:
        run = series.states[0].run
        needed = mixes_of(run.workers)
        errors = averaging_errors(run, 2 * needed)
        lines.append(Line(series.label, series.style, np.arange(len(errors), dtype=float), errors, errors, errors))
        value = data.published_value(series, "averaging_error")
        if value and value.value is not None:
            published.append((needed, value.value, series.style.color))
    note = " · open circles: published" if published else ""
    workers = ", ".join(str(count) for count in sorted({series.states[0].run.workers for series in data.series}))
    return Errors(lines, published, f"computed for {workers} workers{note}")


def draw(errors: Errors) -> Figure:
    """One panel; published values are open circles in the colour of their line."""
    figure = new_figure(COLUMN, 2.6)
    axes = figure.subplots()
    draw_lines(axes, errors.lines)
    for mixes, value, color in errors.published:
        axes.plot(mixes, value, "o", markersize=9, markerfacecolor="none", markeredgecolor=color, zorder=4)
        axes.axvline(mixes, color=GREY, linewidth=0.6, linestyle=":", zorder=1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="Mixing steps", ylabel=r"Averaging error $\lambda_2(P^\top P)$", ylim=(-0.03, 1.03))
    axes.set_xlim(left=0)
    legend(figure, axes, columns=2)
    footnote(figure, errors.setting)
    return figure
