"""The axis of times: modelled where any of the compared runs simulates its workers, otherwise measured."""

from collections.abc import Callable

import numpy as np

from resync.papers.render.item import ItemData, Series
from resync.papers.render.lines import Coordinate, Floats, Line, Panel, limits
from resync.papers.render.style import time_unit
from resync.runs.results.runs import RunResult


def time_panel(
    data: ItemData, y_axis: str, line: Callable[[Series, Coordinate], Line], like: list[Line]
) -> Panel | None:
    """The lines of all series against time, with the vertical limits of `like`; None without a known time."""
    simulated = any(series.simulated for series in data.drawn)
    known = [series for series in data.drawn if series.time or not simulated]
    ends = [
        float(_seconds(series, state.result, simulated)[-1])
        for series in known
        for state in series.states
        if state.result
    ]
    longest = max((end for end in ends if np.isfinite(end)), default=0.0)
    if not longest:
        return None
    size, unit = time_unit(longest)

    def timed(series: Series) -> Coordinate:
        return lambda run: _seconds(series, run, simulated) / size

    title = "Modelled time" if simulated else "Training time"
    return Panel(f"{title} ({unit})", y_axis, [line(series, timed(series)) for series in known], limits(like))


def note(data: ItemData) -> str:
    """What the times are."""
    return data.timed_on if any(series.simulated for series in data.drawn) else "time without evaluation"


def _seconds(series: Series, run: RunResult, simulated: bool) -> Floats:
    if simulated and series.time:
        return series.time.seconds(run.curve("step"), run.curve("volume_percent"))
    return np.asarray(run.curve("training_seconds"), dtype=float)
