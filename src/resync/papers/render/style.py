"""The common style of all figures: sizes, fonts, and the same colour, marker and dash for an algorithm everywhere."""

import io
import math
import zlib
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from resync.papers.render.options.base import Width
from resync.papers.render.text import FONTS, wrapped
from resync.runs.metrics.registry import METRICS
from resync.runs.run import Run
from resync.workers.formulas.periods import Constant, Phases, PowerRule
from resync.workers.sync.options.base import Look, SyncOptions

COLUMN, TEXT = 3.25, 6.75
WIDTHS: dict[Width, float] = {"column": COLUMN, "text": TEXT}
"""Widths in inches of a column and of a block of text, with two columns and the gap between them."""

SMALL = 7.0
"""The smallest text, in points: that of notes, which is still readable in print."""
GREY = "#5f5f5f"
_UNITS = ((2 * 3600, 3600, "h"), (5 * 60, 60, "min"), (0.1, 1, "s"), (1e-9, 1e-3, "ms"), (0, 1, "s"))
"""For each unit: the smallest number of seconds for which it is used, its length in seconds, its name."""
PNG_DPI = 220
_BACKENDS = {"pdf": "pdf", "png": "agg", "svg": "svg"}
"""The modules of matplotlib that draw each kind of file."""

RC = matplotlib.rc_params_from_file(Path(__file__).with_name("figures.mplstyle"), use_default_template=False)
LABEL: float = RC["axes.labelsize"]
"""The size of the titles of axes."""
_SVG_FONTS = b"STIXGeneral, 'STIX Two Text', 'Times New Roman', Times, serif"
"""STIX, or for viewers without it a font with the same widths of letters."""
_COLORS = {
    # Okabe and Ito (2008): distinct for all common forms of colour blindness.
    "black": "#000000",
    "vermillion": "#D55E00",
    "blue": "#0072B2",
    "green": "#009E73",
    "orange": "#E69F00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    # Tol (2021), "muted": for further algorithms.
    "wine": "#882255",
    "teal": "#44AA99",
    "olive": "#999933",
    "indigo": "#332288",
}
_DISTINCT = tuple(_COLORS.values())[:7]
_BROWN_WITH_BLACK = (_COLORS["vermillion"], _COLORS["orange"])
_WINE = "#3F0020"
PALETTE = tuple(_COLORS[name] for name in ("black", "blue", "green", "vermillion"))
"""Colours of lines that are not algorithms."""
_MARKERS = "os^DvPX*<>"
_THIN = "*PX"
_DASHES: dict[str, "Dash"] = {
    "solid": (0, ()),
    "long": (0, (5, 1.5)),
    "short": (0, (2, 1.2)),
    "dash-dot": (0, (5, 1.2, 1, 1.2)),
}
DASHES = tuple(_DASHES.values())
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


_POST_LOCAL, _SWAP = Look("sky", "v", "dash-dot"), Look("green", "^", "short")
_POWERS: dict[float, Look] = {
    2: Look("vermillion", "D", "solid"),
    1: Look("orange", "P", "short"),
    3: Look("purple", "X", "long"),
}
_CONSTANT = Look("blue", "s", "long")
_MOST_SHADES = 4
MOST_IN_LEGEND = 6
"""Lines from which on colours show families of algorithms, and labels stand at the ends of lines."""


def styles_of(runs: Iterable[Run]) -> list[Style]:
    """The styles of an item's series, of which these are a run each; many series have the colours of their families."""
    runs = list(runs)
    families = [_COLORS[_family(run)] for run in runs]
    own = [style_of(run) for run in runs]
    largest = max(Counter(families).values(), default=0)
    if len(runs) <= MOST_IN_LEGEND or largest > MOST_IN_LEGEND or largest == len(runs):
        return distinct(own)
    return distinct([replace(style, color=color) for style, color in zip(own, families, strict=True)], len(runs))


def _family(run: Run) -> str:
    """The colour of a family: all-reduce, an outer step around it or around local steps, averages alone, gossip."""
    sync, traffic = run.sync, run.sync.traffic
    if traffic is not None and traffic.topology is not None:
        return "green"
    if sync.needs.average_gradients:
        return "black" if sync.name == "allreduce" else "purple"
    return "blue" if sync.effective_outer_lr is None else "vermillion"


def style_of(run: Run) -> Style:
    """The style of a run's algorithm; for Local SGD, of its period rule."""
    rule, traffic = run.sync.rule, run.sync.traffic
    if run.sync.look or traffic is None or traffic.every == "step":
        return style_of_algorithm(run.sync.name)
    if isinstance(rule, Constant):
        return _style(_CONSTANT)
    if isinstance(rule, PowerRule) and rule.power in _POWERS:
        return _style(_POWERS[rule.power])
    if isinstance(rule, Phases):
        return _style(_SWAP if rule.phases[-1][1] == "end" else _POST_LOCAL)
    return _style_of_name(f"{rule}")


def style_of_algorithm(name: str) -> Style:
    """The style of an algorithm: that which its options declare, or one that follows from its name."""
    look = SyncOptions.named(name).look
    return _style(look) if look else _style_of_name(name)


def _style(look: Look) -> Style:
    return Style(_COLORS[look.color], look.marker, _DASHES[look.dash])


def _style_of_name(name: str) -> Style:
    choice = zlib.crc32(name.encode())
    color = _COLORS[("sky", "purple", "orange")[choice % 3]]
    return Style(color, _MARKERS[choice % len(_MARKERS)], DASHES[choice % len(DASHES)])


def distinct(styles: Iterable[Style], most_shades: int = _MOST_SHADES) -> list[Style]:
    """The styles of an item's series, no two of them with the same colour and dash.

    Colour shows the algorithm. A few series of one algorithm among others are shades of its colour, from light to dark
    in their order. Where there are more, or where all series are of one algorithm, all but the first get other colours.
    """
    wanted = list(styles)
    counts = Counter(style.color for style in wanted)
    several = {color for color, count in counts.items() if len(counts) > 1 and 1 < count <= most_shades}
    free = cycle([color for color in _DISTINCT if color not in counts] or _DISTINCT)
    met: Counter[str] = Counter()
    chosen = []
    for style in wanted:
        turn = met[style.color]
        met[style.color] += 1
        if style.color in several:
            color = _shades(style.color, counts[style.color])[turn]
        else:
            color = next(free) if turn else style.color
        marker = _MARKERS[(_MARKERS.index(style.marker) + turn) % len(_MARKERS)]
        chosen.append(Style(color, marker, DASHES[(DASHES.index(style.dash) + turn) % len(DASHES)]))
    return chosen


def _shades(color: str, count: int) -> list[str]:
    """Mixtures of a colour with white, then with a dark one, none of them paler than a thin line may be.

    The dark one is black, or wine for orange hues, of which black makes the same brown.
    """
    rgb = np.array(to_rgb(color))
    dark = np.array(to_rgb(_WINE if color in _BROWN_WITH_BLACK else _COLORS["black"]))
    luminance = float(rgb @ (0.2126, 0.7152, 0.0722))
    most = min(0.55, max(0.0, (0.66 - luminance) / (1 - luminance)))
    shares = np.linspace(most, max(-0.55, most - (0.45 if count == 2 else 0.85)), count)
    return [
        to_hex(rgb + share * (1 - rgb) if share > 0 else rgb - share * (dark - rgb)).upper()
        for share in shares.tolist()
    ]


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


def encode(figure: Figure, title: str = "", origin: str | None = None) -> dict[str, bytes]:
    """The figure as `.pdf`, `.png` and `.svg`, reproducible to the byte: without dates and versions.

    Their metadata have the title, and in a line the `origin`.
    """
    return {
        ".pdf": _saved(figure, "pdf", Title=title, Subject=origin, CreationDate=None, Producer=None),
        ".png": _saved(figure, "png", Title=title, Software=None, **({"Description": origin} if origin else {})),
        ".svg": svg(figure, title, origin),
    }


def svg(figure: Figure, title: str = "", origin: str | None = None) -> bytes:
    """The figure as SVG: text as text, also for viewers without the font."""
    saved = _saved(figure, "svg", Title=title, Description=origin, Date=None, Creator=None)
    return saved.replace(", ".join(f"'{name}'" for name in FONTS).encode(), _SVG_FONTS)


def _saved(figure: Figure, kind: str, **metadata: str | None) -> bytes:
    """The same bytes as those of `savefig`, which draws a figure with a layout twice: once for the layout alone."""
    buffer = io.BytesIO()
    figure.dpi = PNG_DPI
    canvas = import_module(f"matplotlib.backends.backend_{_BACKENDS[kind]}").FigureCanvas(figure)
    getattr(canvas, f"print_{kind}")(buffer, metadata=metadata)
    return buffer.getvalue()
