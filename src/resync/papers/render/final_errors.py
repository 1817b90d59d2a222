"""The error of trainings with the rates that searches have found, against their steps."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from resync.papers.render.item import ItemData, Series, require_results
from resync.papers.render.lines import Floats, Line, Panel, Panels, draw_lines
from resync.papers.render.options import FinalErrors
from resync.papers.render.points import Level, levels_note
from resync.papers.render.searched_steps import draw_experiments, experiments
from resync.papers.render.style import Style
from resync.runs.metrics.registry import LEAST_ERROR, NOISY_TRAININGS

_HEIGHT = 2.1
_AXIS, _ERROR = "Steps", "Error"
_RANGE = f"smallest to largest of {NOISY_TRAININGS} trainings with other noise"


def prepare(data: ItemData[FinalErrors]) -> Panels[Line]:
    """A panel for each experiment, with a line for each series that has finished."""
    require_results(data)
    panels = []
    for title, drawn in experiments(data):
        lines = [_line(data, series, style) for series, style in drawn if series.results("finished")]
        panels.append(Panel(_AXIS, _ERROR, lines, log=True, title=title))
    shown = [line for panel in panels for line in panel.lines]
    band = next((f"mean of trainings with noise, band: {line.band}" for line in shown if line.band), "")
    marks = levels_note((level for line in shown for _, level in line.marks), "open circles")
    return Panels(panels, " · ".join(filter(None, [f"{data.scale} scale", band, marks, data.absent])))


def _line(data: ItemData, series: Series, style: Style) -> Line:
    [result, *_] = series.results("finished")
    noisy = "noisy_error" in result.evaluations
    metric = "noisy_error" if noisy else "final_error"

    def column(name: str) -> Floats:
        return result.curve(name).clip(min=LEAST_ERROR)

    steps, errors = result.curve("final_step"), column(metric)
    low, high = (column(f"noisy_error_{end}") for end in ("min", "max")) if noisy else (errors, errors)
    values = [value for value in data.published if (value.experiment, value.series) == series.name]
    levels = [Level.of(value, data.scale) for value in values if value.metric == metric]
    marks = tuple((steps[-1], level) for level in levels if level)
    seeds = tuple(state.run.seed for state in series.states)[:1]
    return Line(series.legend, style, steps, errors, low, high, seeds=seeds, band=_RANGE * noisy, marks=marks)


def draw(panels: Panels[Line], width: float) -> Figure:
    """A panel per experiment, with one legend above them."""
    return draw_experiments(panels, width, _HEIGHT, 5, _draw_panel)


def _draw_panel(axes: Axes, panel: Panel[Line]) -> None:
    draw_lines(axes, panel.lines)
    axes.set_yscale("log")  # with the ticks of the scale
