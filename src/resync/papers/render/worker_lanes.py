"""Who computes and who waits for whom, in simulated time: it follows from the configuration, without training."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from resync.papers.render.item import ItemData
from resync.papers.render.lines import LETTERS, footnote, legend_of
from resync.papers.render.options import WorkerLanes
from resync.papers.render.points import Point
from resync.papers.render.style import new_figure
from resync.runs.exchanges.virtual_time import Stretch, stretches

_AXES = "Simulated time (s)", "Worker"
_LANE = 0.115
"""Inches."""
_LOOKS: dict[str, dict[str, Any]] = {
    "computes": {"facecolor": "#0072b2", "edgecolor": "white", "linewidth": 0.4},
    "waits": {"facecolor": "#e3e3e3", "edgecolor": "none"},
    "is away": {"facecolor": "white", "edgecolor": "#d55e00", "linewidth": 0.4, "hatch": "/////"},
}


@dataclass(frozen=True)
class Lanes:
    """What the workers of each series do, by its label, until `seconds`."""

    series: dict[str, list[Stretch]]
    seconds: float
    setting: str

    def points(self) -> Iterator[Point]:
        for panel, (label, of_series) in zip(LETTERS, self.series.items(), strict=False):
            for stretch in of_series:
                yield Point(
                    panel, label, stretch.doing, _AXES[0], stretch.start, _AXES[1], stretch.worker,
                    stretch.start, stretch.end, "start and end on the horizontal axis",
                )  # fmt: skip


def prepare(data: ItemData[WorkerLanes]) -> Lanes:
    """The stretches of the first seed of every series. Raises ValueError for one without a virtual clock."""
    runs = {series.label: series.states[0].run for series in data.series}
    lanes = {label: stretches(run, data.options.seconds) for label, run in runs.items()}
    seeds = ", ".join(dict.fromkeys(f"seed {run.seed}" for run in runs.values()))
    return Lanes(lanes, data.options.seconds, f"computed for {seeds}; a bar is a phase of local steps and its messages")


def draw(lanes: Lanes, width: float) -> Figure:
    """A panel below another for each series."""
    workers = 1 + max(stretch.worker for of_series in lanes.series.values() for stretch in of_series)
    count = len(lanes.series)
    figure = new_figure(width, count * (workers * _LANE + 0.32) + 0.2)
    panels = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    for name, axes, (label, bars) in zip(LETTERS, panels, lanes.series.items(), strict=False):
        for doing, look in _LOOKS.items():
            for bar in (stretch for stretch in bars if stretch.doing == doing):
                axes.barh(bar.worker, bar.end - bar.start, 0.8, left=bar.start, **look)
        axes.set_title(f"({name}) {label}", loc="left", fontsize=8)
        axes.set(xlim=(0, lanes.seconds), ylim=(workers - 0.5, -0.5), ylabel=_AXES[1])
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=workers))
        axes.grid(visible=False)
    panels[-1].set_xlabel(_AXES[0])
    shown = [
        doing
        for doing in _LOOKS
        if any(stretch.doing == doing for of_series in lanes.series.values() for stretch in of_series)
    ]
    legend_of(figure, [Patch(**_LOOKS[doing]) for doing in shown], shown, columns=3)
    footnote(figure, lanes.setting)
    return figure
