"""Lines: the seeds of a series as one curve with a band, and the drawing of such curves."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from resync.papers.render.item import ItemData, Series
from resync.papers.render.points import Level, Point, levels_note
from resync.papers.render.style import GREY, MOST_IN_LEGEND, SMALL, Style
from resync.papers.render.text import balanced, drawn, has_symbols
from resync.runs.metrics.registry import extremes_of_workers
from resync.runs.results.errors import ResultsError
from resync.runs.results.runs import RunResult

Floats = NDArray[np.float64]
Coordinate = Callable[[RunResult], ArrayLike]
Unit = Callable[[ArrayLike], Floats]

MARKERS_PER_LINE = 7
BELOW: dict[str, Any] = {"linestyle": "-", "linewidth": 3.2, "alpha": 0.6, "marker": ""}
"""How a line is drawn of which a later one would leave nothing to be seen: wide and pale below it."""
_BAND, _BAND_OF_MANY = 0.18, 0.08
"""Opacity of a band, and of one among more than MOST_IN_LEGEND."""
_SEEN = 0.01
"""Distance from another line, as a fraction of the panel's height, from which on a line is seen beside it."""
LETTERS = "abcdefgh"
"""The letters of panels."""
POINTS_PER_INCH = 72


@dataclass(frozen=True)
class Curve:
    """The curve of a single seed."""

    seed: int
    x: Floats
    y: Floats


@dataclass(frozen=True)
class Line:
    """One curve: the mean over the finished `seeds`, its band, and separately the curves of diverged seeds.

    Without seeds it is computed. `band` says what the band is, in words; empty: there is none. `published` is the
    published value at the end of the curve, if there is one of the same scale; one that is only recalled is paler.
    `marks` are published values at points of the curve, with their x.
    """

    label: str
    style: Style
    x: Floats
    y: Floats
    low: Floats
    high: Floats
    diverged: tuple[Curve, ...] = ()
    published: Level | None = None
    seeds: tuple[int, ...] = ()
    band: str = ""
    marks: tuple[tuple[float, Level], ...] = ()

    def points(self, panel: str, x_axis: str, y_axis: str) -> Iterator[Point]:
        def point(shows: str, x: float | None, y: float, **more: Any) -> Point:
            return Point(panel, self.label, shows, x_axis, x, y_axis, y, **more)

        shows = "mean" if len(self.seeds) > 1 else "seed" if self.seeds else "computed"
        seeds: dict[str, Any] = {"n": len(self.seeds) or None, "seed": self.seeds[0] if len(self.seeds) == 1 else None}
        for x, y, low, high in zip(*(column.tolist() for column in (self.x, self.y, self.low, self.high)), strict=True):
            if math.isfinite(x) and math.isfinite(y):
                interval = {"low": low, "high": high, "interval": self.band} if self.band else {}
                yield point(shows, x, y, **interval, **seeds)
        for curve in self.diverged:
            for x, y in zip(curve.x.tolist(), curve.y.tolist(), strict=True):
                if math.isfinite(y):
                    yield point("diverged seed", x, y, n=1, seed=curve.seed)
        if self.published is not None:
            yield point(self.published.shows, None, self.published.value)
        for at, level in self.marks:
            yield point(level.shows, at, level.value)


class _Shown(Protocol):
    def points(self, panel: str, x_axis: str, y_axis: str) -> Iterator[Point]: ...


ShownT = TypeVar("ShownT", bound=_Shown)


@dataclass(frozen=True)
class Panel(Generic[ShownT]):
    """The lines of a panel, the titles of its axes, and the limits of the vertical one, which may be logarithmic."""

    x_axis: str
    y_axis: str
    lines: Sequence[ShownT]
    limits: tuple[float, float] | None = None
    log: bool = False
    title: str = ""


@dataclass(frozen=True)
class Panels(Generic[ShownT]):
    """The panels of a figure from left to right or from top to bottom, and the setting below them."""

    panels: Sequence[Panel[ShownT]]
    setting: str

    def points(self) -> Iterator[Point]:
        for name, panel in zip(LETTERS, self.panels, strict=False):
            for line in panel.lines:
                yield from line.points(name, panel.x_axis, panel.y_axis)


def metric_line(
    data: ItemData, series: Series, metric: str, x: Coordinate, unit: Unit = np.asarray, over_workers: bool = False
) -> Line:
    """The curve of a metric in a unit: the pointwise mean over the finished seeds, with a band from minimum to maximum.

    The band is over the seeds, or over the workers, whose extremes are averaged over the seeds. A NaN in one seed
    leaves a gap; if seeds stopped early, the curve ends with the first of them. The published final or best value
    belongs to it if that is of the same scale. Raises ResultsError if seeds were evaluated at different steps.
    """

    def drawn(run: RunResult, name: str = metric) -> Floats:
        return unit(run.curve(name))

    finished = series.results("finished")
    common = min((len(result.curve("step")) for result in finished), default=0)
    if len({tuple(result.curve("step")[:common].tolist()) for result in finished}) > 1:
        raise ResultsError(f"{finished[0].directory.parent}: seeds were evaluated at different steps")
    xs, ys = (_stack(coordinate(result) for result in finished) for coordinate in (x, drawn))
    band = "minimum to maximum" if len(finished) > 1 else ""
    low, high = ys.min(axis=0), ys.max(axis=0)
    extremes = extremes_of_workers(metric) if over_workers else None
    if extremes:
        low, high = (_stack(drawn(result, name) for result in finished).mean(axis=0) for name in extremes)
        band = "minimum to maximum over the workers"
    diverged = tuple(
        Curve(state.run.seed, *(np.asarray(coordinate(state.result), dtype=float) for coordinate in (x, drawn)))
        for state in series.states
        if state.status == "diverged" and state.result
    )
    seeds = tuple(state.run.seed for state in series.states if state.status == "finished")
    levels = (Level.of(data.published_value(series, name), data.scale) for name in (metric, f"best_{metric}"))
    level = next((replace(known, value=float(unit(known.value))) for known in levels if known), None)
    return Line(series.legend, series.style, xs.mean(axis=0), ys.mean(axis=0), low, high, diverged, level, seeds, band)


def ignore_truncated_rounds(h: Floats, rounds: Floats) -> Floats:
    """H of every step, with that of the round before for a round that the end of a phase or of the training cuts.

    `rounds` are the numbers of the rounds. A single round that is shorter than the one before it and than the one after
    it is cut, which is no change of the period.
    """
    h = h.copy()
    starts = [0, *(np.flatnonzero(np.diff(h)) + 1), len(h)]
    for before, start, end in zip(starts, starts[1:], starts[2:], strict=False):
        after = h[end] if end < len(h) else math.inf
        if rounds[end - 1] - rounds[start] <= 1 and h[start] < min(h[before], after):
            h[start:end] = h[before]
    return h


def period_line(series: Series) -> Line:
    """H against epochs from one seed with results: the period depends on the learning rate, not on the seed."""
    import pandas as pd  # not at the top: figures that are computed from the configuration need none

    status = "finished" if series.results("finished") else "diverged"
    results = series.results(status)[:1]
    seeds = tuple(state.run.seed for state in series.states if state.status == status)[:1]
    columns = ["step", "epoch", "round", "h"]
    rows = [table[columns] for result in results for table in (result.steps, result.metrics)]
    table = pd.concat(rows or [pd.DataFrame(columns=columns)]).drop_duplicates("step")
    table = table[table["step"] > 0].sort_values("step")  # step 0 is before the first round
    epoch, number, h = (table[name].to_numpy(dtype=float) for name in ("epoch", "round", "h"))
    h = ignore_truncated_rounds(h, number)
    epoch, h = np.append(0.0 * epoch[:1], epoch), np.append(h[:1], h)  # the first round begins at epoch 0
    return Line(series.label, series.style, epoch, h, h, h, seeds=seeds)


def limits(lines: Sequence[Line], cut: float = 0.15, log: bool = False) -> tuple[float, float]:
    """Limits of the y axis, with a margin, that show every line after the first fraction `cut` of the x axis.

    A band that is wider than all lines together is cut. A logarithmic axis shows every positive value.
    """
    after = [(line, line.x >= cut * line.x[-1]) for line in lines if line.x.size]
    levels = [line.published.value for line in lines if line.published is not None]
    levels += [level.value for line in lines for _, level in line.marks]
    curves = [line.y[part] for line, part in after] or [curve.y for line in lines for curve in line.diverged]
    bands = [values[part] for line, part in after for values in (line.low, line.high)]

    def ends(values: Sequence[ArrayLike]) -> tuple[float, float]:
        shown = np.concatenate([*values, []])
        shown = shown[np.isfinite(shown) & (shown > 0 if log else True)]
        return (float(shown.min()), float(shown.max())) if shown.size else (0.1 if log else 0.0, 1.0)

    low, high = ends([*curves, levels])
    least, most = ends([*curves, levels, *bands])
    if log:
        return least / 1.5, most * 1.5
    room = high - low or math.inf
    low, high = max(least, low - room), min(most, high + room)
    air = 0.06 * (high - low) or 1.0
    return low - air, high + air


def from_where_it_is_seen(line: Line, limits: tuple[float, float] | None) -> Line:
    """The line without what comes before it enters the limits, where it would only leave the panel."""
    if limits is None or not line.x.size:
        return line
    inside = (line.y >= limits[0]) & (line.y <= limits[1])
    first = int(inside.argmax()) if inside.any() else 0
    x, y, low, high = (values[first:] for values in (line.x, line.y, line.low, line.high))
    return replace(line, x=x, y=y, low=low, high=high)


def setting(data: ItemData, *panels: Sequence[Line]) -> str:
    """The scale and setting of averaged lines, what bands, levels and crosses are, and which series are absent."""
    lines = [line for panel in panels for line in panel]
    seeds = data.seeds if data.seeds == "1 seed" else f"mean over {data.seeds}"
    shown = next((f"band: {line.band}" for line in lines if line.band), "")
    levels = levels_note((line.published for line in lines), "dotted")
    marks = levels_note((level for line in lines for _, level in line.marks), "open circles")
    ends = "cross: diverged" if any(line.diverged for line in lines) else ""
    seeds = ", ".join(filter(None, (seeds, shown)))
    return " · ".join(filter(None, (data.setting, seeds, levels, marks, ends, data.absent)))


def letter(panels: Iterable[Axes]) -> None:
    """Write (a), (b), ... above the left corner of each panel."""
    for name, axes in zip(LETTERS, panels, strict=False):
        axes.set_title(f"({name})", loc="left", fontsize=8)


def covers(later: Line, line: Line, height: float) -> bool:
    """Whether a later line leaves nothing of this one to be seen, in a panel of this height in units of y."""
    if later.x.shape != line.x.shape or not np.allclose(later.x, line.x):
        return False
    return bool(np.nanmax(np.abs(later.y - line.y), initial=0.0) < _SEEN * height)


def draw_lines(axes: Axes, lines: Sequence[Line], limits: tuple[float, float] | None = None) -> None:
    """Draw lines above their bands; a diverged seed is a thin line that ends in a cross, a published value a level.

    A line begins where it enters the `limits` of the panel. One without any point is not drawn, and so is not in the
    legend. One that a later line covers is drawn wide and pale below it.
    """
    lines = [from_where_it_is_seen(line, limits) for line in lines]
    height = limits[1] - limits[0] if limits else 0.0
    opacity = _BAND_OF_MANY if len(lines) > MOST_IN_LEGEND else _BAND
    whole = all(np.array_equal(line.x, np.round(line.x)) for line in lines)  # there is no epoch 2.5
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=whole))
    axes.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
    for position, line in enumerate(lines):
        if not (line.x.size or line.diverged):
            continue
        every = max(1, len(line.x) // MARKERS_PER_LINE)
        offset = position * every // max(1, len(lines))
        below = BELOW if any(covers(later, line, height) for later in lines[position + 1 :]) else {}
        axes.plot(line.x, line.y, label=line.label, markevery=(offset, every), zorder=3, **line.style.line | below)
        axes.fill_between(line.x, line.low, line.high, color=line.style.color, alpha=opacity, linewidth=0, zorder=2)
        if line.published is not None:
            level, color = line.published, line.style.color
            axes.axhline(level.value, color=color, linestyle=level.dash, linewidth=0.9, zorder=1, alpha=level.alpha)
        for at, level in line.marks:
            axes.plot(at, level.value, "o", color=line.style.color, markerfacecolor="none", markersize=6, zorder=4,
                      alpha=level.alpha)  # fmt: skip
        for curve in line.diverged:
            kept = np.isfinite(curve.y)
            x, y = curve.x[kept], curve.y[kept]
            axes.plot(x, y, color=line.style.color, linewidth=0.6, alpha=0.7)
            axes.plot(x[-1:], y[-1:], "x", color=line.style.color, markeredgewidth=1.2, markersize=5)


def draw_periods(axes: Axes, lines: Iterable[Line]) -> None:
    """Draw the periods of rounds as steps, on a logarithmic axis."""
    for line in lines:
        axes.plot(line.x, line.y, label=line.label, drawstyle="steps-post", **line.style.line | {"marker": ""})
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda h, _: f"{h:g}"))
    axes.set_ylabel("Period $H$ (steps)")


def end_labels(axes: Axes) -> None:
    """Write the labels of the lines of the last panel at their ends, right of it, with a thin line to its marker."""
    lines = {str(line.get_label()): line for line in axes.get_lines() if not str(line.get_label()).startswith("_")}
    low, high = axes.get_ylim()
    transform = axes.transScale + axes.transLimits  # of data to fractions of the panel
    ends = {}
    for label, line in lines.items():
        points = np.column_stack(line.get_data())
        shown = points[np.isfinite(points).all(axis=1) & (points[:, 1] >= low) & (points[:, 1] <= high)]
        if len(shown):
            ends[label] = shown[-1], float(transform.transform(shown[-1])[1])
    height = axes.get_window_extent().height * POINTS_PER_INCH / axes.figure.dpi
    places = spread([place for _, place in ends.values()], 1.15 * SMALL / height)
    for (label, (end, _)), place in zip(ends.items(), places, strict=True):
        line, at = lines[label], (1.06, place)
        leader = {"arrowstyle": "-", "color": line.get_color(), "linewidth": 0.7, "shrinkA": 0, "shrinkB": 2}
        axes.annotate("", end, at, "data", "axes fraction", leader)
        key = Line2D([at[0]], [at[1]])
        key.update_from(line)
        key.set(transform=axes.transAxes, clip_on=False, markevery=None, label="_")
        axes.add_artist(key)
        axes.annotate(
            drawn(label), at, (5, 0), "axes fraction", "offset points", va="center", fontsize=SMALL,
            parse_math=has_symbols(label),
        )  # fmt: skip


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Places from 0 to 1, moved as little as needed for `gap` between neighbours; further out if there is no room."""
    order = sorted(range(len(places)), key=places.__getitem__)
    outside = max(0.0, gap * (len(order) - 1) - 1) / 2
    moved, least, most = list(places), -outside, 1 + outside
    for index in order:
        moved[index] = least = max(moved[index], least)
        least += gap
    for index in reversed(order):
        moved[index] = most = min(moved[index], most)
        most -= gap
    return moved


def legend(figure: Figure, axes: Axes, columns: int) -> None:
    """One legend of the lines of `axes` above all panels, see `legend_of`."""
    legend_of(figure, *axes.get_legend_handles_labels(), columns=columns)


def legend_of(figure: Figure, handles: Sequence[Artist], labels: Sequence[str], columns: int) -> None:
    """One legend above all panels, in at most `columns` columns and no more than fit into the figure, which grows."""
    for count in range(min(columns, len(labels)), 0, -1):
        box = figure.legend(handles, list(map(drawn, labels)), loc="outside upper center", ncols=count)
        for text, label in zip(box.get_texts(), labels, strict=True):
            text.set_parse_math(has_symbols(label))  # a label may contain dollars
        extent = box.get_window_extent()
        if count == 1 or extent.width <= figure.bbox.width:
            figure.set_figheight(figure.get_figheight() + extent.height / figure.dpi)
            return
        box.remove()


def footnote(figure: Figure, text: str) -> None:
    """Write the scale and setting of the numbers small and grey below the panels; the figure grows by as much."""
    lines = balanced(text, 0.98 * POINTS_PER_INCH * figure.get_figwidth(), SMALL)
    figure.set_figheight(figure.get_figheight() + 1.2 * SMALL * len(lines) / POINTS_PER_INCH)
    figure.supxlabel(
        "\n".join(lines), x=0.995, ha="right", fontsize=SMALL, linespacing=1.0, color=GREY, parse_math=False
    )


def _stack(curves: Iterable[ArrayLike]) -> Floats:
    """Curves of all seeds as [seeds, points], cut to the shortest; [1, 0] without seeds, whose mean is empty."""
    rows = [np.asarray(curve, dtype=float) for curve in curves]
    common = min(map(len, rows), default=0)
    return np.stack([row[:common] for row in rows]) if rows else np.empty((1, 0))
