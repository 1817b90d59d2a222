"""The common style of all figures: sizes, fonts, and the same colour, marker and dash for an algorithm everywhere."""

import colorsys
import io
import itertools
import math
import zlib
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from resync.config import Run
from resync.config.metrics import METRICS
from resync.formulas.periods import Constant, PowerRule

COLUMN, DOUBLE_COLUMN = 3.3, 6.8
"""Widths in inches of one and two columns of a paper."""

GREY = "#5f5f5f"
_UNITS = ((2 * 3600, 3600, "h"), (5 * 60, 60, "min"), (0, 1, "s"))
"""For each unit: the smallest number of seconds for which it is used, its length in seconds, its name."""
PNG_DPI = 220

# The fonts come with matplotlib, so that every machine draws the same bytes. Type 42 keeps text searchable.
RC = {
    "font.family": ["STIXGeneral", "DejaVu Serif"],
    "mathtext.fontset": "stix",
    "text.hinting": "no_hinting",
    "font.size": 8.5,
    "axes.labelsize": 8.5,
    "axes.titlesize": 8.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.2,
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
}

# Okabe and Ito (2008): distinct for all common forms of colour blindness.
_BLACK, _ORANGE, _SKY, _GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
_BLUE, _VERMILLION, _PURPLE = "#0072B2", "#D55E00", "#CC79A7"
_COLORS = (_BLACK, _VERMILLION, _BLUE, _GREEN, _ORANGE, _PURPLE, _SKY)
PALETTE = (_BLACK, _BLUE, _GREEN, _VERMILLION)
"""Colours of lines that are not algorithms."""
_MARKERS = "os^DvPX*<>"
_THIN = "*PX"
_SOLID, _LONG, _SHORT, _DASH_DOT = (0, ()), (0, (5, 1.5)), (0, (2, 1.2)), (0, (5, 1.2, 1, 1.2))
_DASHES = (_SOLID, _LONG, _SHORT, _DASH_DOT)

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
}
_POWERS: dict[float, Style] = {
    2: Style(_VERMILLION, "D", _SOLID),
    1: Style(_ORANGE, "P", _SHORT),
    3: Style(_PURPLE, "X", _LONG),
}
_CONSTANT = Style(_BLUE, "s", _LONG)


def style_of(run: Run) -> Style:
    """The style of a run's algorithm; for Local SGD, of its period rule: the longer the period, the darker."""
    rule, traffic = run.sync.rule, run.sync.traffic
    if traffic is None or traffic.every == "step" or run.sync.name in _ALGORITHMS:
        return style_of_algorithm(run.sync.name)
    if isinstance(rule, Constant):
        return _shaded(_CONSTANT, rule.h, markers="s^vP")
    if isinstance(rule, PowerRule) and rule.power in _POWERS:
        return _shaded(_POWERS[rule.power], rule.h_base)
    return _style_of_name(f"{rule}")


def style_of_algorithm(name: str) -> Style:
    """The style of an algorithm without options."""
    return _ALGORITHMS.get(name) or _style_of_name(name)


def _style_of_name(name: str) -> Style:
    """A style for a name without a style of its own above: always the same one for the same name."""
    choice = zlib.crc32(name.encode())
    return Style((_SKY, _PURPLE, _ORANGE)[choice % 3], _MARKERS[choice % len(_MARKERS)], _DASHES[choice % 4])


def _shaded(style: Style, h: int, markers: str = "") -> Style:
    """Lighter below H = 4, darker above, with a different marker for each power of two."""
    octaves = math.log2(h) - 2
    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(style.color))
    lightness = min(0.68, max(0.16, lightness * 0.72**octaves))
    marker = markers[round(math.log2(h)) % len(markers)] if markers else style.marker
    return replace(style, color=to_hex(colorsys.hls_to_rgb(hue, lightness, saturation)).upper(), marker=marker)


def distinct(styles: Iterable[Style]) -> list[Style]:
    """The styles of an item's series: no two lines have the same colour and dash, also where no markers are drawn.

    Colour shows the algorithm, unless so many series share one that only different colours tell them apart.
    """
    wanted = list(styles)
    shared = {color for color, count in Counter(style.color for style in wanted).items() if count > len(_DASHES)}
    colors = itertools.cycle(_COLORS)
    seen: list[Style] = []
    for style in (replace(style, color=next(colors)) if style.color in shared else style for style in wanted):
        candidate = style
        for turn in range(1, len(_MARKERS)):
            if candidate not in seen and (turn > len(_DASHES) or not _alike(candidate, seen)):
                break
            marker = _MARKERS[(_MARKERS.index(style.marker) + turn) % len(_MARKERS)]
            candidate = replace(style, marker=marker, dash=_DASHES[(_DASHES.index(style.dash) + turn) % len(_DASHES)])
        seen.append(candidate)
    return seen


def _alike(style: Style, others: Iterable[Style]) -> bool:
    return any((style.color, style.dash) == (other.color, other.dash) for other in others)


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
    """An empty figure of the given size in inches, independent of pyplot and of any display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def encode(figure: Figure) -> dict[str, bytes]:
    """The figure as `.pdf` and `.png`, reproducible to the byte: without dates and versions."""
    files = {}
    for suffix, metadata in (
        (".pdf", {"CreationDate": None, "Producer": None}),
        (".png", {"Software": None}),
    ):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix[1:], dpi=PNG_DPI, metadata=metadata)
        files[suffix] = buffer.getvalue()
    return files
