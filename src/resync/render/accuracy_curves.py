"""Accuracy, error or loss against epochs or steps, and against training time."""

import numpy as np
from numpy.typing import ArrayLike

from resync.config.columns import CONVERSIONS
from resync.config.metrics import METRICS, extremes_of_workers
from resync.render.item import ItemData, require_results
from resync.render.lines import Coordinate, Floats, Line, limits, mean_over_seeds, setting, with_published
from resync.render.metric_panels import MetricPanels
from resync.render.metric_panels import draw as draw
from resync.render.options import AccuracyCurves
from resync.render.style import axis_label, time_unit
from resync.results.runs import RunResult


def prepare(data: ItemData[AccuracyCurves]) -> MetricPanels:
    """The metric at every evaluation; times are those of the training clock, where a process may simulate workers."""
    require_results(data)
    metric, unit = data.options.metric, data.options.unit
    states = [state for series in data.drawn for state in series.states]
    ends = [float(_training_seconds(state.result)[-1]) for state in states if state.result]
    longest = max((end for end in ends if np.isfinite(end)), default=0.0)
    seconds, time = time_unit(longest)
    simulated = any(
        state.result and not state.result.imported and state.run.processes < state.run.workers for state in states
    )
    clock = "Time of the simulation" if simulated else "Training time"

    def drawn(name: str) -> Coordinate:
        return lambda run: _in_unit(run.curve(name), METRICS[name].unit, unit)

    names = extremes_of_workers(metric) if data.options.band == "workers" else None
    extremes = (drawn(names[0]), drawn(names[1])) if names else None

    def lines(x: Coordinate) -> list[Line]:
        averaged = [mean_over_seeds(series, x, drawn(metric), extremes) for series in data.drawn]
        unit_of = METRICS[metric].unit
        return [
            with_published(data, line, series, metric, lambda value: _in_unit(value, unit_of, unit))
            for line, series in zip(averaged, data.drawn, strict=True)
        ]

    by_progress = lines(lambda run: run.metrics[data.options.by])
    return MetricPanels(
        lines={
            METRICS[data.options.by].title: by_progress,
            f"{clock} ({time})": lines(lambda run: _training_seconds(run) / seconds),
        },
        metric_label=axis_label(metric, unit),
        limits=limits(by_progress),
        setting=f"{setting(data, by_progress)} · time without evaluation",
    )


def _in_unit(values: ArrayLike, ours: str, unit: str | None) -> Floats:
    """Values of our unit in the one that is drawn."""
    factor, offset = CONVERSIONS[ours][unit] if unit else (1.0, 0.0)
    return (np.asarray(values, dtype=float) - offset) / factor


def _training_seconds(run: RunResult) -> Floats:
    return np.asarray(run.curve("training_seconds"), dtype=float)
