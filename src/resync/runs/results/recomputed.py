"""The numbers of a summary computed again from metrics.csv, from which they follow."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from resync.runs.metrics.registry import BEST, EVALUATED, METRICS
from resync.runs.results.errors import ResultsError
from resync.runs.results.tables import Columns

_AT_THE_END = {"rounds": "round", "volume_percent": "volume_percent", "bytes_sent": "bytes_sent"}
"""Totals of a summary, by the column whose last value they are."""
_CLOCKS = ("training", "communication", "evaluation")

Pair = tuple[str, float | None, float | None]
"""A number's name, its value in the summary, and the one computed again; None where it is NaN, infinite or absent."""


def require_agreement(path: Path, summary: Mapping[str, Any], evaluations: Columns) -> None:
    """Raise ResultsError with the first number of the summary at `path` that does not follow from metrics.csv."""
    for name, written, computed in _pairs(summary, evaluations):
        if written != computed:
            shown = "nothing" if written is None else f"{written:.10g}"
            other = "nothing" if computed is None else f"{computed:.10g}"
            raise ResultsError(f"{path}: {name} is {shown}, by metrics.csv {other}")


def _pairs(summary: Mapping[str, Any], evaluations: Columns) -> Iterator[Pair]:
    last = {name: _number(values[-1].item()) for name, values in evaluations.items()}  # integers stay exact
    if summary["status"] == "finished":
        yield "steps", summary["steps"], last["step"]
    if summary["steps"] == last["step"]:  # a run may diverge between two evaluations
        for name, column in _AT_THE_END.items():
            yield name, summary[name], last[column]
    for clock in _CLOCKS:
        yield f"seconds.{clock}", summary["seconds"][clock], last[f"{clock}_seconds"]
    shown = {name for name in evaluations if name in EVALUATED or name in BEST}
    for name in sorted(shown | summary["final"].keys()):
        yield f"final.{name}", summary["final"].get(name), last.get(name)
    for name in sorted(shown.intersection(BEST) | summary["best"].keys()):
        best = METRICS[name].best_of(evaluations[name].tolist()) if name in shown else None
        yield f"best.{name}", summary["best"].get(name), best


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
