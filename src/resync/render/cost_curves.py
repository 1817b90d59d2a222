"""A metric against steps, against the bytes that a worker has sent, and against modelled time."""

import numpy as np

from resync.plan.cost import cost
from resync.plan.network import LINKS, Network
from resync.plan.wallclock import Machine, WallClock, wall_clock
from resync.render.item import ItemData, Series, require_results
from resync.render.lines import Coordinate, Floats, Line, Panel, Panels, limits, metric_line, setting
from resync.render.options import CostCurves
from resync.render.panels import draw as draw
from resync.render.style import axis_label, time_unit
from resync.results.runs import RunResult

MEGABYTE = 1e6


def prepare(data: ItemData[CostCurves]) -> Panels:
    """The metric at every evaluation, mean over seeds."""
    require_results(data)
    options = data.options
    clocks = [_clock(series, options) for series in data.drawn]
    unit, name = time_unit(max((clock.total for clock, _ in filter(None, clocks)), default=1.0))

    def line(series: Series, x: Coordinate) -> Line:
        return metric_line(data, series, options.metric, x)

    def lines(x: Coordinate) -> list[Line]:
        return [line(series, x) for series in data.drawn]

    timed = [line(series, _modelled(clock, unit)) for series, clock in zip(data.drawn, clocks, strict=True)]
    by_step = lines(lambda run: run.curve("step"))
    modelled = f"{LINKS[options.network].title}, {1000 * options.compute:g} ms of computing per step"
    by_title = {
        "Step": by_step,
        "Sent by a worker (MB)": lines(lambda run: _column(run, "bytes_sent") / MEGABYTE),
        f"Modelled time ({name})": timed,
    }
    panels = [Panel(title, axis_label(options.metric), found, limits(by_step)) for title, found in by_title.items()]
    return Panels(panels, f"{setting(data, by_step)} · modelled time: {modelled}")


def _clock(series: Series, options: CostCurves) -> tuple[WallClock, int] | None:
    """The modelled clock of the series' runs and the bytes that a worker sends until its end.

    None without a run that says how large its model is.
    """
    for state in series.states:
        size = state.result.summary.get("parameters") if state.result else None
        if size:
            clock = wall_clock(state.run, Machine(Network(LINKS[options.network]), options.compute), size)
            return clock, cost(state.run, size).bytes_per_worker
    return None


def _modelled(planned: tuple[WallClock, int] | None, unit: float) -> Coordinate:
    """The model's time of every evaluation: computing in proportion to steps, communication to the bytes sent."""

    def seconds(run: RunResult) -> Floats:
        steps, sent = _column(run, "step"), _column(run, "bytes_sent")
        if planned is None:
            return np.full_like(steps, np.nan)
        clock, whole = planned
        share = sent / whole if whole else np.zeros_like(sent)  # not of sent[-1]: a run may end early
        return (steps / clock.steps * (clock.compute + clock.waiting) + share * clock.communication) / unit

    return seconds


def _column(run: RunResult, name: str) -> Floats:
    return np.asarray(run.curve(name), dtype=float)
