"""A number at the end of the runs against an option in which their series differ, with the time per step beside it."""

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from resync.config import Run
from resync.render.item import ItemData, Series, require_results
from resync.render.lines import footnote, legend, letter
from resync.render.options import metric_against_option
from resync.render.style import COLUMN, DOUBLE_COLUMN, GREY, Style, axis_label, new_figure

_LOGARITHMIC_FROM = 4
"""Ratio of the largest to the smallest value of the option from which the axis is logarithmic."""


@dataclass(frozen=True)
class Point:
    """A series: its label, our mean and deviation, and the published number.

    A number that does not exist is None; there is no deviation of a single seed.
    """

    label: str
    style: Style
    mean: float | None
    std: float | None
    published: float | None


@dataclass(frozen=True)
class Panel:
    """One metric: the points with their values of the option, in its order, and those of series without it."""

    label: str
    swept: list[tuple[float, Point]]
    fixed: list[Point]


@dataclass(frozen=True)
class Panels:
    """All panels, the title of their common axis, and the setting below."""

    panels: list[Panel]
    axis: str
    setting: str


def prepare(data: ItemData[metric_against_option.MetricAgainstOption]) -> Panels:
    """The mean over the finished seeds of every series. Raises ValueError if no series has the option."""
    require_results(data)
    option = data.options.option
    values = [_value_of(series.states[0].run, option) for series in data.series]
    if all(value is None for value in values):
        raise ValueError(f"{data.item.id}: option: found {option}, allowed: a setting of the runs with a number")
    metrics = [data.options.metric, *(["seconds_per_step"] if data.options.time else [])]
    panels = [_panel(data, metric, values) for metric in metrics]
    shown = [point for panel in panels for point in (*panel.fixed, *(point for _, point in panel.swept))]
    parts = [data.setting, data.seeds if data.seeds == "1 seed" else f"± 1 standard deviation of {data.seeds}"]
    if any(point.published is not None for point in shown):
        parts.append("open or dotted: published")
    return Panels(panels, data.options.axis or option, " · ".join(parts))


def draw(panels: Panels) -> Figure:
    """One panel per metric."""
    figure = new_figure(DOUBLE_COLUMN if len(panels.panels) > 1 else COLUMN, 2.5)
    [row] = figure.subplots(1, len(panels.panels), squeeze=False)
    for axes, panel in zip(row, panels.panels, strict=True):
        _draw_panel(axes, panel)
        axes.set(xlabel=panels.axis, ylabel=panel.label)
    if len(row) > 1:
        letter(row)
    legend(figure, row[0], columns=4)
    footnote(figure, panels.setting)
    return figure


def _value_of(run: Run, option: str) -> float | None:
    """The value at a path of a run's settings; None if it has no such setting, or one that is not a number."""
    found: Any = run
    for name in option.split("."):
        found = getattr(found, name, None)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _panel(data: ItemData, metric: str, values: list[float | None]) -> Panel:
    points = [_point(data, series, metric) for series in data.series]
    swept = [(value, point) for value, point in zip(values, points, strict=True) if value is not None]
    fixed = [point for value, point in zip(values, points, strict=True) if value is None]
    return Panel(axis_label(metric), sorted(swept, key=lambda pair: pair[0]), fixed)


def _point(data: ItemData, series: Series, metric: str) -> Point:
    ours, published = series.evidence(metric), data.published_value(series, metric)
    return Point(
        label=f"{series.label} ({series.note})" if series.note else series.label,
        style=series.style,
        mean=ours.mean if ours.finite else None,
        std=ours.std if ours.finite and ours.n > 1 else None,
        # A published number belongs to the published settings, not to those of a smaller scale.
        published=published.value if published and data.scale == published.scale else None,
    )


def _draw_panel(axes: Axes, panel: Panel) -> None:
    known = [(value, point.mean) for value, point in panel.swept if point.mean is not None]
    axes.plot([value for value, _ in known], [mean for _, mean in known], color=GREY, linewidth=0.8, zorder=2)
    for value, point in panel.swept:
        marker: dict[str, Any] = {"marker": point.style.marker, "linestyle": "", "zorder": 3}
        if point.mean is not None:
            axes.errorbar(
                value, point.mean, yerr=point.std, capsize=2, label=point.label, color=point.style.color, **marker
            )
        else:
            axes.plot([], [], label=point.label, color=point.style.color, **marker)
        if point.published is not None:
            axes.plot(value, point.published, markerfacecolor="none", markeredgecolor="black", **marker)
    for point in panel.fixed:
        if point.mean is not None:
            axes.axhline(point.mean, label=point.label, color=point.style.color, linestyle=point.style.dash)
        if point.published is not None:
            axes.axhline(point.published, color=point.style.color, linewidth=0.6, linestyle=":")
    _scale_axis(axes, [value for value, _ in panel.swept])
    axes.margins(0.08)


def _scale_axis(axes: Axes, values: list[float]) -> None:
    """A tick at every value of the option, on a logarithmic axis if they span a wide range."""
    if min(values) > 0 and max(values) / min(values) >= _LOGARITHMIC_FROM:
        axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(values)))
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
