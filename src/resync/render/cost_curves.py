"""A metric against steps, against the bytes that a worker has sent, and against modelled time."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from resync.plan.network import LINKS, Network
from resync.plan.wallclock import Machine, WallClock, wall_clock
from resync.render.item import ItemData, Series, require_results
from resync.render.lines import Coordinate, Floats, Line, draw_lines, footnote, legend, limits, mean_over_seeds, setting
from resync.render.options import cost_curves
from resync.render.style import DOUBLE_COLUMN, axis_label, new_figure, time_unit
from resync.results.runs import RunResult

MEGABYTE = 1e6


@dataclass(frozen=True)
class Panels:
    """The lines of each panel by the title of its axis, from left to right."""

    lines: dict[str, list[Line]]
    metric_label: str
    limits: tuple[float, float]
    setting: str


def prepare(data: ItemData[cost_curves.CostCurves]) -> Panels:
    """The metric at every evaluation, mean over seeds."""
    require_results(data)
    options = data.options
    clocks = [_clock(series, options) for series in data.series]
    unit, name = time_unit(max((clock.total for clock in clocks if clock), default=1.0))

    def lines(x: Coordinate) -> list[Line]:
        return [
            mean_over_seeds(series, x, lambda run: run.curve(options.metric), options.band) for series in data.series
        ]

    timed = [
        mean_over_seeds(series, _modelled(clock, unit), lambda run: run.curve(options.metric), options.band)
        for series, clock in zip(data.series, clocks, strict=True)
    ]
    by_step = lines(lambda run: run.curve("step"))
    network = options.network.replace("_", " ")
    return Panels(
        lines={
            "Step": by_step,
            "Sent by a worker (MB)": lines(lambda run: _column(run, "bytes_sent") / MEGABYTE),
            f"Modelled time ({name})": timed,
        },
        metric_label=axis_label(options.metric),
        limits=limits(by_step, options.cut),
        setting=f"{setting(data, options.band)} · time of {network} and {options.compute:g} s of computing per step",
    )


def draw(panels: Panels) -> Figure:
    """Three panels with a common metric axis."""
    figure = new_figure(DOUBLE_COLUMN, 2.7)
    row = figure.subplots(1, len(panels.lines), sharey=True)
    for axes, (title, lines) in zip(row, panels.lines.items(), strict=True):
        draw_lines(axes, lines)
        axes.set(xlabel=title, xlim=(0, None))
    row[0].set_ylabel(panels.metric_label)
    row[0].set_ylim(panels.limits)
    legend(figure, row[0], columns=4)
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
