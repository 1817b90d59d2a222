"""Third-party runs in Weights & Biases: exported charts, the history on a server, or the log of an offline run."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from resync.papers.importer.log import LogError, Origin, read_bytes, same, to_number
from resync.papers.importer.table import PlacedCell, PlacedTable, read_csv
from resync.runs.metrics.columns import LogColumn
from resync.runs.results.wandb_log import WandbLogError, read_log

_SEPARATOR = " - "
_BOUNDS = ("__MIN", "__MAX")
TIMEOUT_SECONDS = 60


def read_export(files: Sequence[Path], columns: Mapping[str, LogColumn], wandb_run: str | None) -> PlacedTable:
    """The charts of one run, joined on their x axis, which is the first column of each file.

    An exported chart has a column `<x>` and, for every run, `<run> - <metric>` with the bounds `... __MIN` and
    `... __MAX` of the values that the page merged into one point. The table's columns are named after the metrics.
    Raises LogError if there are several runs and `wandb_run` names none of them, or if a mapped point is the mean of
    different values.
    """
    mapped = {source.column for source in columns.values()}
    joined: dict[float, dict[str, PlacedCell]] = {}
    names: dict[str, None] = {}
    axis = ""
    for file in files:
        table = read_csv(file)
        own = _own_columns(table, wandb_run)
        if axis not in ("", table.columns[0]):
            raise LogError(f"{table.place}: found the x axis {table.columns[0]!r}, allowed: {axis!r}, as in {files[0]}")
        axis = table.columns[0]
        names.update(dict.fromkeys(own))
        for cells in table.rows:
            x = cells[axis]
            row = joined.setdefault(to_number(x.text, x.place, axis), {axis: x})
            row |= {name: cells[column] for name, column in own.items() if cells[column].text}
            for name in mapped & own.keys():
                _refuse_mean(cells, own[name])
    rows = [joined[x] for x in sorted(joined)]
    return PlacedTable(f"{files[0]}:1", (axis, *names), rows)


def read_server(path: str) -> tuple[PlacedTable, list[Origin]]:
    """The whole history of a run on a server, one row per call of `wandb.log`. Raises LogError."""
    if not os.environ.get("WANDB_API_KEY"):
        raise LogError(f"{path}: WANDB_API_KEY is not set, allowed: the key of an account that may read the run")
    import wandb  # takes seconds; only this format pays for it

    try:
        rows = list(wandb.Api(timeout=TIMEOUT_SECONDS).run(path).scan_history())
    except (wandb.Error, ValueError) as error:
        raise LogError(f"{path}: wandb cannot read it: {str(error).splitlines()[0]}") from None
    content = json.dumps(rows, sort_keys=True, default=str)
    return _table(path, rows), [Origin.of(f"wandb run {path}", content.encode())]


def read_offline(path: Path) -> tuple[PlacedTable, list[Origin]]:
    """The logs `run-*.wandb` in a run's folder or in a folder `wandb` of one run, oldest first. Raises LogError."""
    logs = [path] if path.is_file() else sorted([*path.glob("run-*.wandb"), *path.glob("*run-*-*/run-*.wandb")])
    origins = [Origin.of(log.name, read_bytes(log)) for log in logs]
    if len({origin.name for origin in origins}) != 1:
        found = ", ".join(sorted({origin.name for origin in origins})) or "none"
        raise LogError(f"{path}: found the logs {found}, allowed: those of one run, run-*.wandb")
    try:
        jobs = [read_log(log) for log in logs]
    except WandbLogError as error:
        raise LogError(str(error)) from None
    table = _table(str(path), [row for rows in jobs for row in rows])
    return replace(table, jobs=tuple(accumulate(map(len, jobs[:-1])))), origins


def _own_columns(table: PlacedTable, wandb_run: str | None) -> dict[str, str]:
    columns = [name for name in table.columns[1:] if not name.endswith(_BOUNDS)]
    if wandb_run is None:
        runs = dict.fromkeys(name.split(_SEPARATOR)[0] for name in columns if _SEPARATOR in name)
        if len(runs) > 1:
            raise LogError(f"{table.place}: found the runs {', '.join(runs)}, allowed: one, chosen with --wandb-run")
        return {name.split(_SEPARATOR, 1)[-1]: name for name in columns}
    prefix = f"{wandb_run}{_SEPARATOR}"
    own = {name.removeprefix(prefix): name for name in columns if name.startswith(prefix)}
    if not own:
        raise LogError(f"{table.place}: no column begins with {prefix!r}, allowed: the name of a run in the header")
    return own


def _refuse_mean(cells: Mapping[str, PlacedCell], column: str) -> None:
    """Raise LogError for a point that stands for several values: the page thins out long charts."""
    texts = {name: cells[name].text for name in (column, *(column + bound for bound in _BOUNDS)) if name in cells}
    place = cells[column].place
    values = [to_number(text, place, name) for name, text in texts.items() if text]
    if not all(same(value, values[0]) for value in values):
        found = f"a mean of values from {min(values):g} to {max(values):g}"
        raise LogError(f"{place}: column {column!r}: found {found}, allowed: single values, as wandb-api reads them")


def _table(path: str, rows: Sequence[Mapping[str, Any]]) -> PlacedTable:
    if not rows:
        raise LogError(f"{path}: no rows, allowed: a run that logged something")
    cells = [
        {name: PlacedCell("" if value is None else str(value), f"{path}, row {number}") for name, value in row.items()}
        for number, row in enumerate(rows, start=1)
    ]
    return PlacedTable(path, tuple(dict.fromkeys(name for row in rows for name in row)), cells)
