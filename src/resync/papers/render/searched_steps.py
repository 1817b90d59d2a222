"""Steps to the target at the rates that searches have found, against the number of workers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from resync.papers.render.item import ItemData, Series, require_results
from resync.papers.render.lines import Panel, Panels, ShownT, footnote, legend, letter
from resync.papers.render.options import SearchedSteps
from resync.papers.render.points import Point
from resync.papers.render.style import Style, distinct, label_y, new_panels, style_of
from resync.runs.results.seed_values import SeedValues
from resync.runs.run.in_words import counted

_HEIGHT = 2.3
_AXIS = "Workers n"
_STEPS = "Steps to an error of 1e-6"
_RANGE = "smallest to largest"


@dataclass(frozen=True)
class SearchLine:
    """A series: our steps of every seed, and the published ones, by number of workers."""

    label: str
    style: Style
    ours: Mapping[int, SeedValues]
    published: Mapping[int, SeedValues]

    def points(self, panel: str, x_axis: str, y_axis: str) -> Iterator[Point]:
        """Means over the seeds, with their range, and published means."""
        for workers, steps in self.ours.items():
            low, high = min(steps.values), max(steps.values)
            interval = _RANGE if steps.n > 1 else ""
            yield Point(
                panel, self.label, "mean", x_axis, workers, y_axis, steps.mean, low, high, interval, steps.n
            )  # fmt: skip
        for workers, steps in self.published.items():
            yield Point(panel, self.label, "published", x_axis, workers, y_axis, steps.mean, n=steps.n)


def prepare(data: ItemData[SearchedSteps]) -> Panels[SearchLine]:
    """The steps of every search of the finished runs."""
    require_results(data)
    panels = []
    for title, drawn in experiments(data):
        lines = [
            SearchLine(series.legend, style, found_steps(series), published_steps(data, series))
            for series, style in drawn
        ]
        panels.append(Panel(_AXIS, _STEPS, lines, title=title))
    records = {steps.n for panel in panels for line in panel.lines for steps in line.published.values()}
    shown = f"open: mean of published records of {counted(records, 'seed')}" if records else ""
    has_band = any(steps.n > 1 for panel in panels for line in panel.lines for steps in line.ours.values())
    ours = f"mean of {data.seeds}, band: {_RANGE}" if has_band else data.seeds
    setting = f"{data.scale} scale: {ours}"
    return Panels(panels, " · ".join(filter(None, [setting, shown, data.absent])))


def experiments(data: ItemData) -> Iterator[tuple[str, list[tuple[Series, Style]]]]:
    """The title of a panel for each experiment, and what is drawn in it; series of one label look alike in all."""
    first = {series.label: series.states[0].run for series in reversed(data.series)}
    labels = list(dict.fromkeys(series.label for series in data.series))
    styles = dict(zip(labels, distinct(style_of(first[label]) for label in labels), strict=True))
    for _, group in groupby(data.drawn, lambda series: series.name[0]):
        drawn = [(series, styles[series.label]) for series in group]
        yield f"ζ² = {drawn[0][0].states[0].run.data.options['heterogeneity']:g}", drawn


def published_steps(data: ItemData, series: Series) -> dict[int, SeedValues]:
    """The published steps of a series, of all seeds of which there are records, by number of workers."""
    by_workers: dict[int, list[float]] = {}
    for value in data.published:
        of_series = (value.experiment, value.series) == series.name and value.metric == "tuned_steps"
        if of_series and value.at_workers and value.value is not None and value.scale == data.scale:
            by_workers.setdefault(value.at_workers, []).append(value.value)
    return {workers: SeedValues.of(values) for workers, values in sorted(by_workers.items())}


def found_steps(series: Series) -> dict[int, SeedValues]:
    """Our steps of a series, of all finished seeds, by number of workers."""
    by_workers: dict[int, list[float]] = {}
    for result in series.results("finished"):
        for workers, steps in zip(result.curve("searched_workers"), result.curve("tuned_steps"), strict=True):
            by_workers.setdefault(int(workers), []).append(float(steps))
    return {workers: SeedValues.of(values) for workers, values in sorted(by_workers.items())}


def draw(panels: Panels[SearchLine], width: float) -> Figure:
    """A panel per experiment, with one legend above them."""
    return draw_experiments(panels, width, _HEIGHT, 4, _draw_panel)


def draw_experiments(
    panels: Panels[ShownT], width: float, height: float, columns: int, draw_panel: Callable[[Axes, Panel[ShownT]], None]
) -> Figure:
    """A panel per experiment, with one legend of so many columns above them."""
    figure, grid = new_panels(width, len(panels.panels), height, sharey=True)
    for axes, panel in zip(grid.flat, panels.panels, strict=False):
        draw_panel(axes, panel)
        axes.set(xlabel=panel.x_axis)
        axes.set_title(panel.title)
        if axes in grid[:, 0]:
            label_y(axes, panel.y_axis, height)
    letter(grid.flat)
    legend(figure, grid[0, 0], columns=columns)
    footnote(figure, panels.setting)
    return figure


def _draw_panel(axes: Axes, panel: Panel[SearchLine]) -> None:
    for line in panel.lines:
        _draw(axes, line)
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(sorted({workers for line in panel.lines for workers in line.ours}))
    axes.minorticks_off()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _draw(axes: Axes, line: SearchLine) -> None:
    workers, steps = list(line.ours), list(line.ours.values())
    known = [(n, seeds) for n, seeds in zip(workers, steps, strict=True) if seeds.finite]
    x = [n for n, _ in known]
    axes.plot(x, [seeds.mean for _, seeds in known], label=line.label, **line.style.line)
    low, high = ([pick(seeds.values) for _, seeds in known] for pick in (min, max))
    axes.fill_between(x, low, high, color=line.style.color, alpha=0.15, linewidth=0)
    axes.plot(
        list(line.published), [seeds.mean for seeds in line.published.values()], linestyle="", marker=line.style.marker,
        markerfacecolor="none", markeredgecolor=line.style.color, markersize=7.5, markeredgewidth=0.8,
    )  # fmt: skip
