"""The chart of a figure from the points that it shows, which are in a CSV file beside it."""

import csv
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resync.papers.render import style
from resync.papers.report.curves import MOST_POINTS, shortened

_DASHES: tuple[list[float], ...] = ([], [5.0, 1.5], [3.0, 1.0, 1.0, 1.0])
"""Of lines that are no declared series, each for all colours."""
_LEVELS = {"published": [1.0, 2.0], "measured by this project": [4.0, 2.0, 1.0, 2.0]}
"""Of numbers beside ours, by what they are called up to the first comma."""

Look = tuple[str, list[float]]
"""Colour and dash of a line."""


def panels(file: Path, looks: Mapping[str, Look]) -> list[dict[str, Any]]:
    """The panels of a figure: titles of the axes, and lines with their points [x, y, low, high] or their level.

    `looks` has the series by their labels, which legends may continue by a note in brackets.
    """
    by_panel: dict[tuple[str, str, str], dict[tuple[str, str, str], list[dict[str, str]]]] = {}
    with file.open(newline="", encoding="utf-8") as text:
        for row in csv.DictReader(text):
            lines = by_panel.setdefault((row["panel"], row["x_axis"], row["y_axis"]), {})
            lines.setdefault((row["series"], row["shows"], row["seed"]), []).append(row)
    return [{"name": name, "x": x, "y": y, "lines": _lines(rows, looks)} for (name, x, y), rows in by_panel.items()]


def _lines(
    rows_of: Mapping[tuple[str, str, str], list[dict[str, str]]], looks: Mapping[str, Look]
) -> list[dict[str, Any]]:
    others = dict.fromkeys(series for series, _, _ in rows_of if _declared(series, looks) is None)
    chosen = dict(zip(others, itertools.product(_DASHES, style.PALETTE), strict=False))
    lines = []
    for (series, shows, seed), rows in rows_of.items():
        dash, color = chosen.get(series, (_DASHES[0], style.PALETTE[0]))
        color, dash = _declared(series, looks) or (color, dash)
        label = [series, "" if shows in ("mean", "seed") else shows, f"seed {seed}" if seed else ""]
        line = {"label": ", ".join(filter(None, label)), "color": color}
        lines.append(line | {"dash": _LEVELS.get(shows.partition(",")[0], dash)} | _places(rows))
    return lines


def _declared(series: str, looks: Mapping[str, Look]) -> Look | None:
    return next((look for label, look in looks.items() if series == label or series.startswith(f"{label} (")), None)


def _places(rows: list[dict[str, str]]) -> dict[str, Any]:
    """The points of a line, thinned out to what a chart can show, or the level of one without an x."""
    placed = [row for row in rows if row["x"]]
    if not placed:
        return {"level": shortened(float(rows[0]["y"]))}
    kept = [*placed[: -1 : -(-len(placed) // MOST_POINTS)], placed[-1]]
    columns = [[shortened(float(row[name] or "nan")) for row in kept] for name in ("x", "y", "low", "high")]
    columns[2:] = [[y if end is None else end for y, end in zip(columns[1], ends, strict=True)] for ends in columns[2:]]
    return {"points": columns}
