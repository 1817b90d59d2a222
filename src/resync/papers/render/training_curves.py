"""Learning rate, losses and accuracy against epochs."""

from dataclasses import replace

from resync.papers.render.item import ItemData, Series, require_results
from resync.papers.render.lines import Panel, Panels, limits, metric_line, setting
from resync.papers.render.options import TrainingCurves
from resync.papers.render.panels import draw as draw
from resync.papers.render.points import Level
from resync.papers.render.style import axis_label


def prepare(data: ItemData[TrainingCurves]) -> Panels:
    """The metrics at every evaluation, mean over seeds, and published values of some epochs."""
    require_results(data)
    panels = []
    for metric in data.options.metrics:
        lines = [metric_line(data, series, metric, lambda run: run.curve("epoch")) for series in data.drawn]
        marked = [
            replace(line, marks=_marks(data, series, metric)) for line, series in zip(lines, data.drawn, strict=True)
        ]
        log = metric in data.options.log
        panels.append(Panel(data.options.axis, axis_label(metric), marked, limits(marked, 0.1, log), log))
    return Panels(panels, setting(data, *(panel.lines for panel in panels)))


def _marks(data: ItemData[TrainingCurves], series: Series, metric: str) -> tuple[tuple[float, Level], ...]:
    """The epochs and values that are published of this line within it."""
    last = max((max(run.curve("epoch")) for run in series.results("finished")), default=0)
    marks = [
        (value.at_epoch, Level.of(value, data.scale))
        for value in data.published
        if (value.experiment, value.series, value.metric) == (*series.name, metric)
    ]
    return tuple((at, level) for at, level in marks if at is not None and level is not None and at <= last)
