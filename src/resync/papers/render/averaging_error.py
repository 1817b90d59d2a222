"""Averaging error of gossip topologies, without training: the paper's analysis behind its choice of topology."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from resync.papers.plan.averaging_error import averaging_errors, mixes_of
from resync.papers.render.item import ItemData
from resync.papers.render.lines import Line, draw_lines, footnote, legend
from resync.papers.render.options import AveragingError
from resync.papers.render.points import Point
from resync.papers.render.style import GREY, new_figure


@dataclass(frozen=True)
class Errors:
    """One line per series, and (line, mixing steps, value) of each published value."""

    lines: list[Line]
    published: list[tuple[Line, int, float]]
    setting: str

    def points(self) -> Iterator[Point]:
        axes = "Mixing steps", "Averaging error"
        for line in self.lines:
            yield from line.points("a", *axes)
        for line, mixes, value in self.published:
            yield Point("a", line.label, "published", axes[0], mixes, axes[1], value)


def prepare(data: ItemData[AveragingError]) -> Errors:
    """The errors of every series, up to twice the number of mixing steps that the exponential graph needs."""
    lines, published = [], []
    for series in data.series:
        run = series.states[0].run
        needed = mixes_of(run.workers)
        errors = averaging_errors(run, 2 * needed)
        lines.append(Line(series.label, series.style, np.arange(len(errors), dtype=float), errors, errors, errors))
        value = data.published_value(series, "averaging_error")
        if value and value.value is not None:
            published.append((lines[-1], needed, value.value))
    note = " · open circles: published" if published else ""
    workers = ", ".join(str(count) for count in sorted({series.states[0].run.workers for series in data.series}))
    return Errors(lines, published, f"computed for {workers} workers{note}")


def draw(errors: Errors, width: float) -> Figure:
    """One panel; published values are open circles in the colour of their line."""
    figure = new_figure(width, 2.1)
    axes = figure.subplots()
    draw_lines(axes, errors.lines)
    for line, mixes, value in errors.published:
        edge: dict[str, Any] = {"markeredgecolor": line.style.color, "markeredgewidth": 0.9}
        axes.plot(mixes, value, "o", markersize=9, markerfacecolor="none", zorder=4, **edge)
        axes.axvline(mixes, color=GREY, linewidth=0.6, linestyle=":", zorder=1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="Mixing steps", ylabel=r"Averaging error $\lambda_2(P^\top P)$", ylim=(-0.03, None))
    axes.set_xlim(left=0)
    legend(figure, axes, columns=2)
    footnote(figure, errors.setting)
    return figure
