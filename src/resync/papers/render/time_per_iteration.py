"""Time per iteration against the number of workers: the cost of all-reduce and gossip on a network.

The lines are the wall-clock model. Its two unknowns, the computation time and the efficiency of the all-reduce, are
fitted to two published times of all-reduce methods; everything else is predicted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator

from resync.base.errors import UserError
from resync.papers.plan.forecast import Fit, fit, published_time, seconds_per_step
from resync.papers.plan.network import LINKS, Network
from resync.papers.plan.wallclock import Machine, RunTime, wall_clock
from resync.papers.render import options as declared
from resync.papers.render.item import ItemData
from resync.papers.render.lines import BELOW, LETTERS, footnote, legend_of
from resync.papers.render.points import Point
from resync.papers.render.style import GREY, Style, new_panels, style_of_algorithm
from resync.runs.run import Run
from resync.workers.sync.options.base import SyncOptions

_CERTAIN = ("verified", "secondary")
_ALGORITHMS = ("allreduce", "dpsgd", "sgp", "osgp", "adpsgd")
_MOST_WORKERS = 1024
_DELAY = 0.1
"""The mean exponential delay of a step in the panel of stragglers, as a fraction of the computation."""
_SECONDS, _WAITING = "Time per iteration (s)", "Waiting (mean delays)"

Curves = dict[str, dict[int, float]]
"""By algorithm, the model's numbers by number of workers."""


@dataclass(frozen=True)
class Time:
    """Seconds per iteration of one series: published with a status, or `measured` here."""

    algorithm: str
    workers: int
    seconds: float
    status: str
    seed: int | None = None


@dataclass(frozen=True)
class NetworkTimes:
    """The curves and points of one network; a curve has seconds per iteration by number of workers."""

    title: str
    curves: Curves
    times: list[Time]


@dataclass(frozen=True)
class Networks:
    """All networks, the cost of stragglers on the first one in mean delays, and the note below."""

    panels: list[NetworkTimes]
    waiting: Curves
    note: str

    def points(self) -> Iterator[Point]:
        for name, panel in zip(LETTERS, self.panels, strict=False):
            yield from _computed(name, panel.curves, _SECONDS)
            for time in panel.times:
                own = time.status == "measured"
                shows = "seed" if own else f"published, {time.status}"
                label = _label_of(time.algorithm)
                yield Point(name, label, shows, "Workers", time.workers, _SECONDS, time.seconds, seed=time.seed)
        yield from _computed(LETTERS[len(self.panels)], self.waiting, _WAITING)


def _computed(panel: str, curves: Curves, y_axis: str) -> Iterator[Point]:
    for algorithm, values in curves.items():
        for workers, value in values.items():
            yield Point(panel, _label_of(algorithm), "computed", "Workers", workers, y_axis, value)


def prepare(data: ItemData[declared.TimePerIteration]) -> Networks:
    """The model calibrated on the published hours of the first panel's experiment, always at paper scale.

    Raises ValueError for an experiment that has no series here, and if no two published times can calibrate the model.
    """
    given = data.options.panels
    networks = [Network(LINKS[panel.network], all_reduce=panel.all_reduce) for panel in given]
    references = [_references(data, panel) for panel in given]
    measured = [(run, data.options.parameters) for run in references[0] or data.references]
    fitted = fit(measured, data.published, lambda run: networks[0])
    machines = [fitted.machine(networks[0]), *(Machine(network, fitted.compute) for network in networks[1:])]
    late = replace(machines[0], delay=_DELAY * fitted.compute)
    panels = [
        NetworkTimes(
            f"{LINKS[panel.network].title}\nAR: {_all_reduce(runs, panel)}",
            _curves(data, runs, machine, lambda clock: clock.per_step),
            [*_published(data, runs), *_measured(data, panel)],
        )
        for panel, runs, machine in zip(given, references, machines, strict=True)
    ]
    waiting = _curves(data, references[0], late, lambda clock: clock.waiting / clock.steps / late.delay)
    return Networks(panels, waiting, _note(data, fitted, zip(references, machines, strict=True)))


def draw(panels: Networks, width: float) -> Figure:
    """One panel per network, with a common time axis, and a panel of waiting times."""
    figure, grid = new_panels(width, len(panels.panels) + 1, 2.1, least=1.5)
    *networks, last = grid.flat
    for axes, letter, panel in zip(networks, LETTERS, panels.panels, strict=False):
        axes.sharey(networks[0])
        if axes not in grid[:, 0]:
            axes.tick_params(labelleft=False)
        _draw_network(axes, panel)
        axes.set_title(f"({letter}) {panel.title}", loc="left", linespacing=1.0, parse_math=False)
    networks[0].set_yscale("log", base=2)
    networks[0].yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
    for axes in grid[:, 0]:
        axes.set_ylabel(_SECONDS)
    _draw_curves(last, panels.waiting)
    last.set_title(f"({LETTERS[len(networks)]}) Stragglers\n(first network)", loc="left", linespacing=1.0)
    last.set(ylabel=_WAITING, ylim=(-0.15, None))
    _legend(figure, panels)
    footnote(figure, panels.note)
    return figure


def _references(data: ItemData[declared.TimePerIteration], panel: declared.NetworkPanel) -> list[Run]:
    runs = [run for run in data.references if run.experiment == panel.experiment]
    if panel.experiment and not runs:
        allowed = ", ".join(dict.fromkeys(run.experiment for run in data.references))
        raise UserError(f"{data.item.id}: found a panel of experiment {panel.experiment}, allowed: {allowed}")
    return runs


def _options(runs: Iterable[Run], algorithm: str) -> SyncOptions:
    chosen = (run.sync for run in runs if run.sync.name == algorithm)
    return next(chosen, None) or SyncOptions.named(algorithm).model_validate({})


def _all_reduce(runs: Iterable[Run], panel: declared.NetworkPanel) -> str:
    traffic = _options(runs, "allreduce").traffic
    own = traffic is not None and traffic.all_reduce != "default"
    return (traffic.all_reduce if traffic is not None and own else panel.all_reduce).replace("_", " ")


def _curves(
    data: ItemData[declared.TimePerIteration],
    runs: Sequence[Run],
    machine: Machine,
    value: Callable[[RunTime], float],
) -> Curves:
    fewest, most = min(run.workers for run in data.references), _MOST_WORKERS
    workers = [1 << power for power in range(most.bit_length()) if fewest <= 1 << power <= most]
    curves = {}
    for algorithm in _ALGORITHMS:
        run = data.references[0].model_copy(update={"sync": _options(runs, algorithm)})
        curves[algorithm] = {
            count: value(wall_clock(run, machine, data.options.parameters, count)) for count in workers
        }
    return curves


def _published(data: ItemData, runs: Iterable[Run]) -> Iterator[Time]:
    for run in runs:
        if value := published_time(run, data.published):
            yield Time(run.sync.name, run.workers, seconds_per_step(value, run.total_steps), value.status)


def _measured(data: ItemData, panel: declared.NetworkPanel) -> Iterator[Time]:
    """Our own times, only at paper scale: other scales train other models."""
    for state in (state for series in data.series for state in series.states) if data.scale == "paper" else ():
        if state.run.experiment == panel.experiment and state.status == "finished" and state.result:
            seconds = state.result.final("seconds_per_step")
            yield Time(state.run.sync.name, state.run.workers, seconds, "measured", state.run.seed)


def _note(
    data: ItemData[declared.TimePerIteration], fitted: Fit, panels: Iterable[tuple[Sequence[Run], Machine]]
) -> str:
    errors: dict[str, list[float]] = {}
    for run, machine in ((run, machine) for runs, machine in panels for run in runs):
        value = published_time(run, data.published)
        if run.id not in fitted.runs and value:
            ours = wall_clock(run, machine, data.options.parameters).per_step
            error = 100 * (ours / seconds_per_step(value, run.total_steps) - 1)
            errors.setdefault(_label_of(run.sync.name), []).append(error)
    ends = {name: dict.fromkeys(f"{end:+.1f}" for end in (min(all_), max(all_))) for name, all_ in errors.items()}
    ranges = ", ".join(f"{name} {' to '.join(bounds)} %" for name, bounds in ends.items())
    task = ", ".join(dict.fromkeys(run.data.name for run in data.references))
    labels = [run.label for name in fitted.runs for run in data.references if run.id == name]
    return (
        f"paper scale · {task} · computation {fitted.compute:.3g} s and, on the first network, "
        f"all-reduce x {fitted.slowdown:.2g}: fitted to {' and '.join(labels)} · predictions against published times: "
        f"{ranges} · stragglers: exponential delay of every step, mean {_DELAY:.0%} of the computation"
    )


def _draw_network(axes: Axes, panel: NetworkTimes) -> None:
    _draw_curves(axes, panel.curves)
    for time in panel.times:
        axes.plot(time.workers, time.seconds, **_marker(style_of_algorithm(time.algorithm), time.status), zorder=4)
    if panel.times:
        last = max(time.workers for time in panel.times)
        axes.axvline(last, color=GREY, linewidth=0.6, linestyle=(0, (1, 2)))
    axes.margins(y=0.1)


def _draw_curves(axes: Axes, curves: Curves) -> None:
    """Lines over the number of workers; a line hidden by a later one is drawn wide and pale below it."""
    drawn = [list(values.values()) for values in curves.values()]
    for position, (algorithm, values) in enumerate(curves.items(), 1):
        hidden = any(np.allclose(drawn[position - 1], other) for other in drawn[position:])
        look = style_of_algorithm(algorithm).line | {"marker": ""} | (BELOW if hidden else {})
        axes.plot(list(values), list(values.values()), **look)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("Workers")
    axes.xaxis.set_major_locator(LogLocator(base=4, numticks=20))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda workers, _: f"{workers:g}"))


def _marker(style: Style, status: str) -> dict[str, Any]:
    """Filled if the published value is certain, open if it is not, with a black edge if measured here."""
    face = style.color if status in (*_CERTAIN, "measured") else "white"
    edge = "black" if status == "measured" else style.color
    return {
        "marker": style.marker,
        "markersize": 4.6,
        "markerfacecolor": face,
        "markeredgecolor": edge,
        "linestyle": "",
    }


def _legend(figure: Figure, panels: Networks) -> None:
    times = [time for panel in panels.panels for time in panel.times]
    handles, labels = [], []
    for algorithm in dict.fromkeys([*panels.waiting, *(time.algorithm for time in times)]):
        line = style_of_algorithm(algorithm).line | ({} if algorithm in panels.waiting else {"linestyle": ""})
        handles.append(Line2D([], [], **line))
        labels.append(_label_of(algorithm))
    grey = Style(GREY, "o", (0, ()))
    statuses = dict.fromkeys(time.status for time in times)
    uncertain = [status for status in statuses if status not in (*_CERTAIN, "measured")]
    for alike in ([status for status in _CERTAIN if status in statuses], uncertain):
        if alike:
            handles.append(Line2D([], [], **_marker(grey, alike[0])))
            labels.append(f"published, {' or '.join(alike)}")
    if "measured" in statuses:
        handles.append(Line2D([], [], **_marker(grey, "measured")))
        labels.append("measured")
    legend_of(figure, handles, labels, columns=len(labels))


def _label_of(algorithm: str) -> str:
    return SyncOptions.named(algorithm).label or algorithm
