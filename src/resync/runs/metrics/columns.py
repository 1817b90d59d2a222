"""The column map of a third-party log: which of its columns corresponds to which of ours, and in which unit."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import Field, RootModel

from resync.base.settings.base import Settings, Text
from resync.base.settings.errors import Problem, not_among, raise_if_any
from resync.base.settings.loader import load
from resync.base.settings.tree import Node
from resync.base.settings.validation import validated
from resync.runs.metrics.registry import EVALUATED

CONVERSIONS: dict[str, dict[str, tuple[float, float]]] = {
    "%": {"fraction": (100, 0), "error %": (-1, 100), "error fraction": (-100, 100)},
    "nats": {"bits": (math.log(2), 0)},
    "s": {"ms": (1e-3, 0), "min": (60, 0), "h": (3600, 0)},
    "bytes": {"kB": (1e3, 0), "MB": (1e6, 0), "GB": (1e9, 0), "KiB": (2**10, 0), "MiB": (2**20, 0), "GiB": (2**30, 0)},
}
"""Foreign units by our unit: (factor, offset), ours = factor * theirs + offset."""


class LogColumn(Settings):
    """The source of one of our columns."""

    column: Text = Field(description="name of the column in the log")
    unit: str | None = Field(
        default=None,
        description="unit in the log, if it differs from ours: "
        + "; ".join(f"for {ours}: {', '.join(theirs)}" for ours, theirs in CONVERSIONS.items()),
    )
    add: float = Field(default=0.0, description="offset in our unit: 1 for an epoch or step that the log counts from 0")

    def convert(self, value: float, ours: str) -> float:
        factor, offset = (1.0, 0.0) if self.unit in (None, ours) else CONVERSIONS[ours][self.unit]
        return factor * value + offset + self.add


class ColumnMap(RootModel[dict[Text, LogColumn]]):
    """A map from our columns (of metrics.csv or steps.csv) to the log's: either step or epoch, and the metrics."""


def load_columns(file: Path, units: Mapping[str, str]) -> dict[str, LogColumn]:
    """Read a column map; `units` gives the unit of each column that may be mapped. Raises ConfigError."""
    node = load(file)
    columns = validated(ColumnMap, node).root
    raise_if_any(_wrong_names(columns, node, units))
    return columns


def _wrong_names(columns: Mapping[str, LogColumn], node: Node, units: Mapping[str, str]) -> Iterator[Problem]:
    """Unknown columns, one that is two metrics, units that cannot be converted to ours, a missing or ambiguous step."""
    taken: dict[tuple[str, str | None], str] = {}
    for name, source in columns.items():
        entry = node.entries[name]
        allowed = [units[name], *CONVERSIONS.get(units[name], ())] if name in units else []
        if name not in units:
            yield entry.problem(not_among(name, units))
        elif source.unit not in (None, *allowed):
            yield entry.entries["unit"].problem(not_among(source.unit, allowed))
        elif name in EVALUATED and (first := taken.setdefault((source.column, source.unit), name)) != name:
            yield entry.problem(f"found {source.column!r} again, allowed: a column of its own, since {first} has this")
    if len(columns.keys() & {"step", "epoch"}) != 1:
        found = " and ".join(sorted(columns.keys() & {"step", "epoch"})) or "neither"
        yield node.problem(f"found {found}, allowed: step or epoch; the other one follows from it")
