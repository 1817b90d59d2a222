"""Lines: the seeds of a series as one curve with a band, and the drawing of such curves."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from resync.render.item import ItemData, Series
from resync.render.style import GREY, Style
from resync.results.errors import ResultsError
from resync.results.runs import RunResult

Floats = NDArray[np.float64]
Coordinate = Callable[[RunResult], ArrayLike]
Unit = Callable[[float], Floats | float]

MARKERS_PER_LINE = 7
BANDS = {
    "range": "band: minimum to maximum",
    "std": "band: ± 1 standard deviation",
    "workers": "band: minimum to maximum over the workers",
}


@dataclass(frozen=True)
class Line:
    """One curve: the mean over the finished seeds, its band, and separately the curves of diverged seeds.

    `published` is the published value at the end of the curve, if there is one of the same scale.
    """

    label: str
    style: Style
    x: Floats
    y: Floats
    low: Floats
    high: Floats
    diverged: tuple[tuple[Floats, Floats], ...] = ()
    published: float | None = None


def mean_over_seeds(
    series: Series, x: Coordinate, y: Coordinate, band: str, extremes: tuple[Coordinate, Coordinate] | None = None
) -> Line:
    """The curve of a series: the pointwise mean over its finished seeds, with a band if there are at least two.

    With `extremes`, the band is between their means over the seeds. A NaN in one seed leaves a gap; if seeds stopped
    early, the curve ends with the first of them. Raises ResultsError if seeds were evaluated at different steps.
    """
    finished = series.results("finished")
    common = min((len(result.metrics) for result in finished), default=0)
    if len({tuple(result.metrics["step"][:common]) for result in finished}) > 1:
        raise ResultsError(f"{finished[0].directory.parent}: seeds were evaluated at different steps")
    xs, ys = (_stack(coordinate(result) for result in finished) for coordinate in (x, y))
    low, high = (
        (_stack(edge(result) for result in finished).mean(axis=0) for edge in extremes) if extremes else _band(ys, band)
    )
    diverged = tuple(
        (np.asarray(x(result), dtype=float), np.asarray(y(result), dtype=float))
        for result in series.results("diverged")
    )
    label = f"{series.label} ({series.note})" if series.note else series.label
    return Line(label, series.style, xs.mean(axis=0), ys.mean(axis=0), low, high, diverged)


def with_published(data: ItemData, line: Line, series: Series, metric: str, unit: Unit = lambda value: value) -> Line:
    """The line with the published final or best value of its series; published values are of paper scale."""
    found = (data.published_value(series, name) for name in (metric, f"best_{metric}"))
    known = [
        value.value for value in found if value is not None and value.value is not None and value.scale == data.scale
    ]
    return replace(line, published=float(unit(known[0]))) if known else line


def period_line(series: Series) -> Line:
    """H against epochs from one seed with results: the period depends on the learning rate, not on the seed."""
    results = (series.results("finished") or series.results("diverged"))[:1]
    rows = [table[["step", "epoch", "h"]] for result in results for table in (result.steps, result.metrics)]
    table = pd.concat(rows or [pd.DataFrame(columns=["step", "epoch", "h"])]).drop_duplicates("step")
    table = table[table["step"] > 0].sort_values("step")  # step 0 is before the first round
    epoch, h = (table[name].to_numpy(dtype=float) for name in ("epoch", "h"))
    earlier = h[h != h[-1]] if h.size else h
    if earlier.size and earlier[-1] > h[-1]:
        # The end of the training cuts the last round, which is no change of the period.
        h = np.where(np.arange(len(h)) > np.flatnonzero(h != h[-1])[-1], earlier[-1], h)
    epoch, h = np.append(0.0 * epoch[:1], epoch), np.append(h[:1], h)  # the first round begins at epoch 0
    return Line(series.label, series.style, epoch, h, h, h)


def limits(lines: Sequence[Line], cut: float) -> tuple[float, float]:
    """Limits of the y axis, with a margin, that show every value after the first fraction `cut` of the x axis."""
    values = [
        values[line.x >= cut * line.x[-1]]
        for line in lines if line.x.size
        for values in (line.low, line.high, line.y)
    ] or [y for line in lines for _, y in line.diverged]  # fmt: skip
    levels = [line.published for line in lines if line.published is not None]
    shown = np.concatenate([*values, levels])
    shown = shown[np.isfinite(shown)]
    low, high = (float(shown.min()), float(shown.max())) if shown.size else (0.0, 1.0)
    air = 0.06 * (high - low) or 1.0
    return low - air, high + air


def setting(data: ItemData, band: str) -> str:
    """The scale and setting of averaged lines, in words."""
    if data.seeds == "1 seed":
        return f"{data.setting} · 1 seed" + (f", {BANDS[band]}" if band == "workers" else "")
    return f"{data.setting} · mean over {data.seeds}, {BANDS[band]}"


def letter(panels: Iterable[Axes]) -> None:
    """Write (a), (b), ... above the left corner of each panel."""
    for name, axes in zip("abcdefgh", panels, strict=False):
        axes.set_title(f"({name})", loc="left", fontsize=8)


def draw_lines(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw lines above their bands; a diverged seed is a thin line that ends in a cross, a published value a level."""
    for position, line in enumerate(lines):
        every = max(1, len(line.x) // MARKERS_PER_LINE)
        offset = position * every // max(1, len(lines))
        axes.plot(line.x, line.y, label=line.label, markevery=(offset, every), zorder=3, **line.style.line)
        axes.fill_between(line.x, line.low, line.high, color=line.style.color, alpha=0.18, linewidth=0, zorder=2)
        if line.published is not None:
            axes.axhline(line.published, color=line.style.color, linestyle=":", linewidth=0.9, zorder=1)
        for x, y in line.diverged:
            kept = np.isfinite(y)
            axes.plot(x[kept], y[kept], color=line.style.color, linewidth=0.6, alpha=0.7)
            axes.plot(x[kept][-1:], y[kept][-1:], "x", color=line.style.color, markeredgewidth=1.2, markersize=5)


def legend(figure: Figure, axes: Axes, columns: int) -> None:
    """One legend of the lines of `axes` above all panels, see `legend_of`."""
    legend_of(figure, *axes.get_legend_handles_labels(), columns=columns)


def legend_of(figure: Figure, handles: Sequence[Artist], labels: Sequence[str], columns: int) -> None:
    """One legend above all panels, in at most `columns` columns and no more than fit into the figure."""
    for count in range(min(columns, len(labels)), 0, -1):
        drawn = figure.legend(handles, labels, loc="outside upper center", ncols=count)
        for text in drawn.get_texts():
            text.set_parse_math(False)  # a label may contain dollars
        if count == 1 or drawn.get_window_extent().width <= figure.bbox.width:
            return
        drawn.remove()


def footnote(figure: Figure, text: str) -> None:
    """Write the scale and setting of the numbers small and grey below the panels."""
    # About 24 characters of this size are an inch.
    lines = "\n".join(textwrap.wrap(text, int(24 * figure.get_figwidth())))
    figure.supxlabel(lines, x=0.995, ha="right", fontsize=6.5, color=GREY, parse_math=False)


def _stack(curves: Iterable[ArrayLike]) -> Floats:
    """Curves of all seeds as [seeds, points], cut to the shortest; [1, 0] without seeds, whose mean is empty."""
    rows = [np.asarray(curve, dtype=float) for curve in curves]
    common = min(map(len, rows), default=0)
    return np.stack([row[:common] for row in rows]) if rows else np.empty((1, 0))


def _band(ys: Floats, band: str) -> tuple[Floats, Floats]:
    if len(ys) < 2:
        return ys[0], ys[0]
    if band == "range":
        return ys.min(axis=0), ys.max(axis=0)
    mean, std = ys.mean(axis=0), ys.std(axis=0, ddof=1)
    return mean - std, mean + std
