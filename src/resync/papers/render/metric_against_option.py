"""A number at the end of the runs against an option in which their series differ, with the time per step beside it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from resync.base.errors import UserError
from resync.papers.render.item import ItemData, Series, require_results
from resync.papers.render.lines import Panel, Panels, footnote, legend, letter
from resync.papers.render.options import MetricAgainstOption
from resync.papers.render.points import Level, Point, levels_note
from resync.papers.render.style import GREY, Style, axis_label, label_y, new_panels
from resync.papers.render.text import drawn, has_symbols
from resync.runs.run import Run

_HEIGHT = 2.1
_LOGARITHMIC_FROM = 4
"""Ratio of the largest to the smallest value of the option from which the axis is logarithmic."""

_STD = "± 1 standard deviation"


@dataclass(frozen=True)
class Ending:
    """A series: its label, its value `x` of the option, our mean and deviation over `seeds`, and the published number.

    A number that does not exist is None; there is no deviation of a single seed, and no `x` of a level.
    """

    label: str
    style: Style
    x: float | None
    mean: float | None
    std: float | None
    published: Level | None
    seeds: tuple[int, ...]

    def points(self, panel: str, x_axis: str, y_axis: str) -> Iterator[Point]:
        x, one = self.x, self.seeds[0] if len(self.seeds) == 1 else None
        if self.mean is not None:
            low, high = (None, None) if self.std is None else (self.mean - self.std, self.mean + self.std)
            yield Point(
                panel, self.label, "mean" if one is None else "seed", x_axis, x, y_axis, self.mean, low, high,
                "" if self.std is None else _STD, len(self.seeds), one,
            )  # fmt: skip
        if self.published is not None:
            yield Point(panel, self.label, self.published.shows, x_axis, x, y_axis, self.published.value)


def prepare(data: ItemData[MetricAgainstOption]) -> Panels[Ending]:
    """The mean over the finished seeds of every series: in the order of the option, then of those without it.

    Raises ValueError if no series has the option.
    """
    require_results(data)
    option = data.options.option
    values = [_value_of(series.states[0].run, option) for series in data.series]
    if all(value is None for value in values):
        raise UserError(f"{data.item.id}: option: found {option}, allowed: a setting of the runs with a number")
    metrics = [data.options.metric, *(["seconds_per_step"] if data.options.time else [])]
    panels = []
    for metric in metrics:
        endings = [_ending(data, series, metric, x) for series, x in zip(data.series, values, strict=True)]
        endings.sort(key=lambda ending: math.inf if ending.x is None else ending.x)
        modelled = data.simulates(metric)
        if modelled and not data.timed_on:
            continue
        label = axis_label(metric)
        label = f"Modelled {label[0].lower()}{label[1:]}" if modelled else label
        panels.append(Panel(data.options.axis or option, label, endings))
    shown = [ending for panel in panels for ending in panel.lines]
    parts = [data.setting, data.seeds if data.seeds == "1 seed" else f"{_STD} of {data.seeds}"]
    parts += [data.timed_on] if any(map(data.simulates, metrics)) else []
    parts.append(levels_note((ending.published for ending in shown), "open or dotted"))
    return Panels(panels, " · ".join(filter(None, [*parts, data.absent])))


def draw(panels: Panels[Ending], width: float) -> Figure:
    """One panel per metric."""
    figure, grid = new_panels(width, len(panels.panels), _HEIGHT)
    for axes, panel in zip(grid.flat, panels.panels, strict=True):
        _draw_panel(axes, panel)
        label_y(axes, panel.y_axis, _HEIGHT)
        axes.set_xlabel(drawn(panel.x_axis), parse_math=has_symbols(panel.x_axis))
    if len(panels.panels) > 1:
        letter(grid.flat)
    legend(figure, grid[0, 0], columns=4)
    footnote(figure, panels.setting)
    return figure


def _value_of(run: Run, option: str) -> float | None:
    value: Any = run
    for name in option.split("."):
        value = getattr(value, name, None)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _ending(data: ItemData, series: Series, metric: str, x: float | None) -> Ending:
    ours = series.evidence(metric)
    return Ending(
        label=series.legend,
        style=series.style,
        x=x,
        mean=ours.mean if ours.finite else None,
        std=ours.std if ours.finite and ours.n > 1 else None,
        published=Level.of(data.published_value(series, metric), data.scale),
        seeds=tuple(state.run.seed for state in series.states if state.status == "finished"),
    )


def _draw_panel(axes: Axes, panel: Panel[Ending]) -> None:
    swept = [(ending.x, ending) for ending in panel.lines if ending.x is not None]
    known = [(value, ending.mean) for value, ending in swept if ending.mean is not None]
    axes.plot([value for value, _ in known], [mean for _, mean in known], color=GREY, linewidth=0.8, zorder=2)
    for value, ending in swept:
        marker: dict[str, Any] = {"marker": ending.style.marker, "markersize": 5.0, "linestyle": "", "zorder": 3}
        if ending.mean is not None:
            axes.errorbar(
                value, ending.mean, yerr=ending.std, capsize=2, label=ending.label, color=ending.style.color, **marker
            )
        if ending.published is not None:
            alone: dict[str, Any] = {"label": ending.label} if ending.mean is None else {}
            look = marker | {"markerfacecolor": "none", "markeredgecolor": "black", "alpha": ending.published.alpha}
            axes.plot(value, ending.published.value, **look, **alone)
    for ending in panel.lines[len(swept) :]:
        if ending.mean is not None:
            axes.axhline(ending.mean, label=ending.label, color=ending.style.color, linestyle=ending.style.dash)
        if ending.published is not None:
            color, level = ending.style.color, ending.published
            axes.axhline(level.value, color=color, linewidth=0.6, linestyle=level.dash, alpha=level.alpha)
    _scale_axis(axes, [value for value, _ in swept])
    axes.margins(0.08)


def _scale_axis(axes: Axes, values: list[float]) -> None:
    if min(values) > 0 and max(values) / min(values) >= _LOGARITHMIC_FROM:
        axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(values)))
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
