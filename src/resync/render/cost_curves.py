"""A metric against steps, against the bytes that a worker has sent, and against modelled time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from resync.plan.network import LINKS, Network
from resync.plan.wallclock import Machine, WallClock, wall_clock
from resync.render.item import ItemData, Series, require_results
from resync.render.lines import (
    LETTERS,
    Coordinate,
    Floats,
    Line,
    draw_lines,
    footnote,
    legend,
    letter,
    limits,
    mean_over_seeds,
    points_of,
    setting,
    with_published,
)
from resync.render.options import cost_curves
from resync.render.points import Point
from resync.render.style import axis_label, new_panels, time_unit
from resync.results.runs import RunResult

MEGABYTE = 1e6


@dataclass(frozen=True)
class Panels:
    """The lines of each panel by the title of its axis, from left to right."""

    lines: dict[str, list[Line]]
    metric_label: str
    limits: tuple[float, float]
    setting: str

    def points(self) -> Iterator[Point]:
        """Those of every panel."""
        for panel, (x_axis, lines) in zip(LETTERS, self.lines.items(), strict=False):
            yield from points_of(panel, x_axis, self.metric_label, lines)


def prepare(data: ItemData[cost_curves.CostCurves]) -> Panels:
    """The metric at every evaluation, mean over seeds."""
    require_results(data)
    options = data.options
    clocks = [_clock(series, options) for series in data.series]
    unit, name = time_unit(max((clock.total for clock in clocks if clock), default=1.0))

    def line(series: Series, x: Coordinate) -> Line:
        drawn = mean_over_seeds(series, x, lambda run: run.curve(options.metric), options.band)
        return with_published(data, drawn, series, options.metric)

    def lines(x: Coordinate) -> list[Line]:
        return [line(series, x) for series in data.series]

    timed = [line(series, _modelled(clock, unit)) for series, clock in zip(data.series, clocks, strict=True)]
    by_step = lines(lambda run: run.curve("step"))
    modelled = f"{options.network.replace('_', ' ')}, {options.compute:g} s of computing per step"
    return Panels(
        lines={
            "Step": by_step,
            "Sent by a worker (MB)": lines(lambda run: _column(run, "bytes_sent") / MEGABYTE),
            f"Modelled time ({name})": timed,
        },
        metric_label=axis_label(options.metric),
        limits=limits(by_step, options.cut),
        setting=f"{setting(data, options.band, by_step)} · time: {modelled}",
    )


def draw(panels: Panels, width: float) -> Figure:
    """Three panels with a common metric axis."""
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


def _clock(series: Series, options: cost_curves.CostCurves) -> WallClock | None:
    """The modelled clock of the series' runs; None without one that says how large its model is."""
    for state in series.states:
        size = state.result.summary.get("parameters") if state.result else None
        if size:
            return wall_clock(state.run, Machine(Network(LINKS[options.network]), options.compute), size)
    return None


def _modelled(clock: WallClock | None, unit: float) -> Coordinate:
    """The model's time of every evaluation: computing in proportion to steps, communication to the bytes sent."""

    def seconds(run: RunResult) -> Floats:
        steps, sent = _column(run, "step"), _column(run, "bytes_sent")
        if clock is None:
            return np.full_like(steps, np.nan)
        share = sent / sent[-1] if sent[-1] > 0 else np.zeros_like(sent)
        return (steps / clock.steps * (clock.compute + clock.waiting) + share * clock.communication) / unit

    return seconds


def _column(run: RunResult, name: str) -> Floats:
    return np.asarray(run.curve(name), dtype=float)
