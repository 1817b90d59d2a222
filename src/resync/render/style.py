"""The common style of all figures: sizes, fonts, and the same colour, marker and dash for an algorithm everywhere."""

import io
import itertools
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import YAxis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from resync.config import Run
from resync.config.metrics import METRICS
from resync.config.parts import Width
from resync.formulas.periods import Constant, Phases, PowerRule
from resync.render.text import FONTS, wrapped

COLUMN, TEXT = 3.25, 6.75
WIDTHS: dict[Width, float] = {"column": COLUMN, "text": TEXT}
"""Widths in inches of a column and of a block of text, with two columns and the gap between them."""

SMALL = 7.0
"""The smallest text, in points: that of notes, which is still readable in print."""
LABEL = 8.5
"""The titles of axes."""
GREY = "#5f5f5f"
_UNITS = ((2 * 3600, 3600, "h"), (5 * 60, 60, "min"), (0.1, 1, "s"), (1e-9, 1e-3, "ms"), (0, 1, "s"))
"""For each unit: the smallest number of seconds for which it is used, its length in seconds, its name."""
PNG_DPI = 220
_BACKENDS = {"pdf": "pdf", "png": "agg", "svg": "svg"}
"""The modules of matplotlib that draw each kind of file."""

# Type 42 keeps the text of a PDF searchable. Text in an SVG stays text, and its ids are the same in every drawing.
RC = {
    "font.family": list(FONTS),
    "mathtext.fontset": "stix",
    "text.hinting": "no_hinting",
    "font.size": 8.5,
    "axes.labelsize": LABEL,
    "axes.titlesize": 8.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.handletextpad": 0.6,
    "legend.columnspacing": 1.0,
    "legend.labelspacing": 0.3,
    "legend.borderpad": 0.2,
    "legend.borderaxespad": 0.2,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.6,
    "lines.markeredgewidth": 0.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "resync",
}
_SVG_GEOMETRY = re.compile(rb' (?:d|points|transform|x|y|width|height)="[^"]*"')
_SVG_FONTS = b"STIXGeneral, 'STIX Two Text', 'Times New Roman', Times, serif"
"""STIX, or for viewers without it a font with the same widths of letters."""
_SVG_SHORTER = {
    rb"\s*font-family: 'STIXGeneral'(?:, [^;\"]*)?;?": b"",
    rb' transform="rotate\(-0 [^"]*\)"': b"",
    rb'<g id="[^"]*"': b"<g",
    rb"\s*\n\s*": b"\n",
}
"""What says nothing, and what stands for it."""

# Okabe and Ito (2008): distinct for all common forms of colour blindness.
_BLACK, _ORANGE, _SKY, _GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
_BLUE, _VERMILLION, _PURPLE = "#0072B2", "#D55E00", "#CC79A7"
_COLORS = (_BLACK, _VERMILLION, _BLUE, _GREEN, _ORANGE, _PURPLE, _SKY)
# Tol (2021), "muted": for further algorithms.
_WINE, _TEAL, _OLIVE, _INDIGO = "#882255", "#44AA99", "#999933", "#332288"
PALETTE = (_BLACK, _BLUE, _GREEN, _VERMILLION)
"""Colours of lines that are not algorithms."""
_MARKERS = "os^DvPX*<>"
_THIN = "*PX"
_SOLID, _LONG, _SHORT, _DASH_DOT = (0, ()), (0, (5, 1.5)), (0, (2, 1.2)), (0, (5, 1.2, 1, 1.2))
DASHES = (_SOLID, _LONG, _SHORT, _DASH_DOT)
"""Dashes that differ also without colour."""

Dash = tuple[int, tuple[float, ...]]


@dataclass(frozen=True)
class Style:
    """Style of a line; two lines differ in more than their colour, for print in black and white."""

    color: str
    marker: str
    dash: Dash

    @property
    def line(self) -> dict[str, Any]:
        """Keyword arguments of matplotlib's `plot`."""
        # A white edge sets full markers off from the line; of thin ones it would leave nothing.
        thin = self.marker in _THIN
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": self.dash,
            "markeredgecolor": self.color if thin else "white",
            "markersize": 5.0 if thin else RC["lines.markersize"],
        }


_ALGORITHMS = {
    "allreduce": Style(_BLACK, "o", _SOLID),
    "sgp": Style(_GREEN, "^", _DASH_DOT),
    "osgp": Style(_SKY, "v", _SHORT),
    "dpsgd": Style(_PURPLE, "P", _LONG),
    "adpsgd": Style(_ORANGE, "X", _SHORT),
    "slowmo": Style(_VERMILLION, "*", _LONG),
    "diloco": Style(_GREEN, "D", _LONG),
    "streaming_diloco": Style(_TEAL, "v", _SHORT),
    "snoo": Style(_ORANGE, ">", _SHORT),
    "gpa": Style(_PURPLE, "<", _DASH_DOT),
    "palsgd": Style(_SKY, "P", _LONG),
    "desloc": Style(_WINE, "X", _DASH_DOT),
    "noloco": Style(_OLIVE, "s", _SHORT),
}
_POST_LOCAL, _SWAP = Style(_SKY, "v", _DASH_DOT), Style(_GREEN, "^", _SHORT)
_POWERS: dict[float, Style] = {
    2: Style(_VERMILLION, "D", _SOLID),
    1: Style(_ORANGE, "P", _SHORT),
    3: Style(_PURPLE, "X", _LONG),
}
_CONSTANT = Style(_BLUE, "s", _LONG)
_MOST_SHADES = 4


def style_of(run: Run) -> Style:
    """The style of a run's algorithm; for Local SGD, of its period rule."""
    rule, traffic = run.sync.rule, run.sync.traffic
    if traffic is None or traffic.every == "step" or run.sync.name in _ALGORITHMS:
        return style_of_algorithm(run.sync.name)
    if isinstance(rule, Constant):
        return _CONSTANT
    if isinstance(rule, PowerRule) and rule.power in _POWERS:
        return _POWERS[rule.power]
    if isinstance(rule, Phases):
        return _SWAP if rule.phases[-1][1] == "end" else _POST_LOCAL
    return _style_of_name(f"{rule}")


def style_of_algorithm(name: str) -> Style:
    """The style of an algorithm without options."""
    return _ALGORITHMS.get(name) or _style_of_name(name)


def _style_of_name(name: str) -> Style:
    """A style for a name without a style of its own above: always the same one for the same name."""
    choice = zlib.crc32(name.encode())
    return Style((_SKY, _PURPLE, _ORANGE)[choice % 3], _MARKERS[choice % len(_MARKERS)], DASHES[choice % 4])


def distinct(styles: Iterable[Style]) -> list[Style]:
    """The styles of an item's series: no two lines have the same marker, or the same colour and dash, if possible.

    Colour shows the algorithm. A few series of one algorithm among others are shades of its colour, from light to dark
    in their order. Where there are more, or where all series are of one algorithm, all but the first get other colours.
    """
    wanted = list(styles)
    counts = Counter(style.color for style in wanted)
    shades = {
        color: iter(_shades(color, count))
        for color, count in counts.items()
        if len(counts) > 1 and 1 < count <= _MOST_SHADES
    }
    unused = [color for color in _COLORS if not any(_near(color, style.color) for style in wanted)]
    free = itertools.cycle(unused or _COLORS)
    seen: list[Style] = []
    met: set[str] = set()
    for style in wanted:
        color = style.color
        if color in shades:
            color = next(shades[color])
        elif color in met:
            color = next(free)
        met.add(style.color)
        seen.append(_unlike(replace(style, color=color), seen))
    return seen


def _shades(color: str, count: int) -> list[str]:
    """Mixtures of a colour with white, then with black, none of them paler than a thin line may be."""
    rgb = np.array(to_rgb(color))
    luminance = float(rgb @ (0.2126, 0.7152, 0.0722))
    most = min(0.55, max(0.0, (0.66 - luminance) / (1 - luminance)))
    shares = np.linspace(most, max(-0.55, most - (0.45 if count == 2 else 0.85)), count)
    return [to_hex(rgb + share * (1 - rgb) if share > 0 else rgb * (1 + share)).upper() for share in shares.tolist()]


def _near(one: str, other: str) -> bool:
    """Whether two colours are hard to tell apart in a thin line."""
    return math.dist(to_rgb(one), to_rgb(other)) < 0.3


def _unlike(style: Style, others: Sequence[Style]) -> Style:
    """The style itself, or with another marker and dash the one that is most unlike the others."""

    def likeness(candidate: Style) -> tuple[int, int]:
        alike = ((candidate.color, candidate.dash) == (other.color, other.dash) for other in others)
        return sum(alike), sum(candidate.marker == other.marker for other in others)

    if likeness(style) == (0, 0):
        return style
    marker, dash = _MARKERS.index(style.marker), DASHES.index(style.dash)
    turned = (
        replace(style, marker=_MARKERS[(marker + turn) % len(_MARKERS)], dash=DASHES[(dash + other) % len(DASHES)])
        for other, turn in itertools.product(range(len(DASHES)), range(len(_MARKERS)))
    )
    dashes = Counter(other.dash for other in others)
    return min(turned, key=lambda candidate: (*likeness(candidate), dashes[candidate.dash]))


def time_unit(seconds: float) -> tuple[float, str]:
    """Length in seconds and name of the unit in which a time of `seconds` is shown."""
    return next((size, name) for least, size, name in _UNITS if seconds >= least)


def axis_label(metric: str, unit: str | None = None) -> str:
    """Title and unit of a metric: `Validation top-1 accuracy (%)`, or `Learning rate`, which has no unit.

    In the unit `error %`, an accuracy is named as an error.
    """
    title, shown = METRICS[metric].title, unit or METRICS[metric].unit
    if shown.startswith("error "):
        title, shown = title.replace("accuracy", "error"), shown.removeprefix("error ")
    return title if shown == "1" else f"{title} ({shown})"


def look() -> AbstractContextManager[None]:
    """The matplotlib context in which everything is drawn."""
    settings: Any = dict(matplotlib.rcParamsDefault) | RC  # whatever the user's matplotlibrc says
    del settings["backend"]
    return matplotlib.rc_context(settings)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of the given size in inches, independent of pyplot and of any display.

    A legend above it and a note below it add their heights.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_panels(width: float, count: int, height: float, least: float = 2.0, **shared: Any) -> tuple[Figure, Any]:
    """A figure with `count` panels, and these as an array [rows, columns].

    A row is `height` inches high, and has as many panels as leave each of them `least` inches. `shared` is for
    matplotlib's `subplots`.
    """
    rows = math.ceil(count / max(1, int(width // least)))
    columns = math.ceil(count / rows)
    figure = new_figure(width, rows * height)
    panels = np.asarray(figure.subplots(rows, columns, squeeze=False, **shared))
    for unused in panels.flat[count:]:
        unused.remove()
    return figure, panels


def label_y(axes: Axes, label: str, height: float) -> None:
    """Write the title of the vertical axis in lines that are no longer than a panel of `height` inches."""
    axes.set_ylabel("\n".join(wrapped(label, 0.6 * 72 * height, LABEL)), linespacing=1.1)


def period_axis(axis: YAxis) -> None:
    """A logarithmic axis of a period, with ticks at powers of two."""
    axis.axes.set_yscale("log", base=2)
    axis.set_major_formatter(FuncFormatter(lambda h, _: f"{h:g}"))


def encode(figure: Figure, title: str = "") -> dict[str, bytes]:
    """The figure as `.pdf`, `.png` and `.svg`, reproducible to the byte: without dates and versions."""
    return {
        ".pdf": _saved(figure, "pdf", Title=title, CreationDate=None, Producer=None),
        ".png": _saved(figure, "png", Title=title, Software=None),
        ".svg": svg(figure, title),
    }


def svg(figure: Figure, title: str = "") -> bytes:
    """The figure as a small SVG: text as text, its font named once, and coordinates in hundredths of a point.

    Groups have no ids, so that several figures can stand in one page.
    """
    saved = _saved(figure, "svg", Title=title, Date=None, Creator=None)
    rounded = _SVG_GEOMETRY.sub(lambda found: re.sub(rb"(\.\d\d)\d+", rb"\1", found[0]), saved)
    for pattern, short in _SVG_SHORTER.items():
        rounded = re.sub(pattern, short, rounded)
    return rounded.replace(b"<svg ", b'<svg font-family="' + _SVG_FONTS + b'" ', 1)


def _saved(figure: Figure, kind: str, **metadata: str | None) -> bytes:
    """The same bytes as those of `savefig`, which draws a figure with a layout twice: once for the layout alone."""
    buffer = io.BytesIO()
    figure.dpi = PNG_DPI
    canvas = import_module(f"matplotlib.backends.backend_{_BACKENDS[kind]}").FigureCanvas(figure)
    getattr(canvas, f"print_{kind}")(buffer, metadata=metadata)
    return buffer.getvalue()
