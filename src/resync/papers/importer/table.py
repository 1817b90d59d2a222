"""Plain tables: CSV files with a header, and their translation to our rows by a column map."""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from resync.base.settings.errors import suggestion
from resync.papers.importer.log import (
    ImportedLog,
    LogError,
    Values,
    again,
    read_text,
    require_possible,
    same,
    to_count,
    to_number,
)
from resync.runs.metrics.columns import LogColumn
from resync.runs.metrics.registry import EVALUATED, METRICS, columns
from resync.runs.run import Run


@dataclass(frozen=True)
class PlacedCell:
    """The text of a cell, empty if the log has no value, and its place (`file:line`)."""

    text: str
    place: str


@dataclass(frozen=True)
class PlacedTable:
    """Rows of cells by column; `place` is that of the header, `jobs` the first row of each later job of the run."""

    place: str
    columns: tuple[str, ...]
    rows: list[dict[str, PlacedCell]]
    jobs: tuple[int, ...] = ()


def read_csv(file: Path, skipped: int = 0) -> PlacedTable:
    """A CSV file whose first line, after those skipped, names the columns."""
    reader = csv.reader(read_text(file).split("\n")[skipped:])
    rows: list[dict[str, PlacedCell]] = []
    try:
        header = next(reader, [])
        if repeated := [name for name, count in Counter(header).items() if count > 1]:
            raise LogError(
                f"{file}:{skipped + 1}: found the column {repeated[0]!r} twice, allowed: unique column names"
            )
        for line in reader:
            place = f"{file}:{skipped + reader.line_num}"
            if line and len(line) != len(header):
                raise LogError(f"{place}: found {len(line)} values, allowed: {len(header)}, as in the header")
            if line:
                rows.append({name: PlacedCell(text.strip(), place) for name, text in zip(header, line, strict=True)})
    except csv.Error as error:
        raise LogError(f"{file}:{skipped + reader.line_num}: {error}") from None
    if not rows:
        raise LogError(f"{file}: no rows, allowed: a header and at least one row")
    return PlacedTable(f"{file}:{skipped + 1}", tuple(header), rows)


def translate(table: PlacedTable, mapped: Mapping[str, LogColumn], run: Run) -> ImportedLog:
    """The rows of a table in our columns and units.

    A row that adds values to the one before, of the same step, is a part of it unless the two contradict each other. A
    row with a validation metric is an evaluation. Other rows are sampled steps if they have a step, and are dropped if
    the table only counts epochs. Raises LogError for a missing column, a cell that is not a number, a value that its
    metric cannot have, steps that do not increase, a total that falls, an evaluation without a step, a table without an
    evaluation, or a column of which no value would be kept.
    """
    for name, source in mapped.items():
        if source.column not in table.columns:
            known = suggestion(source.column, table.columns)
            raise LogError(f"{table.place}: no column {source.column!r}, to which the map assigns {name}{known}")
    rows = [(_row(cells, mapped, run), next(iter(cells.values())).place) for cells in table.rows]
    notes = [*_without_gaps([row for row, _ in rows], mapped)]
    joined, repeated = _of_last_jobs(rows, table.jobs)
    metrics: list[tuple[str, Values]] = []
    steps: list[tuple[str, Values]] = []
    for row, place in joined:
        is_evaluation = any(name in EVALUATED for name in row)
        of_kind = metrics if is_evaluation else steps
        if not is_evaluation and "step" not in mapped:
            continue
        if "step" not in row:
            axis = mapped["step" if "step" in mapped else "epoch"]
            raise LogError(f"{place}: column {axis.column!r}: found nothing, allowed: a number")
        kept = {name: value for name, value in row.items() if name in columns("metrics" if is_evaluation else "steps")}
        if kept.keys() <= {"step", "epoch"}:
            continue
        if of_kind and kept["step"] <= of_kind[-1][1]["step"]:
            raise LogError(f"{place}: found step {kept['step']} after {of_kind[-1][1]['step']}, allowed: a later one")
        of_kind.append((place, kept))
    if not metrics:
        wanted = ", ".join(EVALUATED)
        raise LogError(f"{table.place}: no row has a validation metric, allowed: at least one of {wanted} in the map")
    _refuse_to_lose(table, mapped, {name for _, row in (*metrics, *steps) for name in row})
    for of_kind in (metrics, steps):
        require_possible(of_kind, {name: source.column for name, source in mapped.items()})
    return ImportedLog([row for _, row in metrics], [row for _, row in steps], (*notes, *repeated))


def _without_gaps(rows: Sequence[Values], mapped: Mapping[str, LogColumn]) -> Iterator[str]:
    """Delete the NaN of a metric in rows before a number: it was not evaluated there, since NaN would have remained.

    Yields a note for every metric.
    """
    for name in [name for name in mapped if name in METRICS and not METRICS[name].grows]:
        last = max((place for place, row in enumerate(rows) if math.isfinite(row.get(name, math.nan))), default=0)
        gaps = [row for row in rows[:last] if math.isnan(row.get(name, 0.0))]
        for row in gaps:
            del row[name]
        if gaps:
            yield f"{name}: NaN in {len(gaps)} rows before a number counts as not evaluated"


def _of_last_jobs(
    rows: Sequence[tuple[Values, str]], jobs: Sequence[int]
) -> tuple[list[tuple[Values, str]], list[str]]:
    """The joined rows (see `_joined`) of all jobs, of steps that several have logged those of the last one, and notes.

    Of the step with which a later job begins, what it does not log again stays: it has continued from there.
    """
    kept: list[tuple[Values, str]] = []
    notes = []
    for start, end in pairwise((0, *jobs, len(rows))):
        new = _joined(rows[start:end])
        first = next((row["step"] for row, _ in new if "step" in row), math.inf)
        earlier = [(row, place) for row, place in kept if row.get("step", -1) <= first]
        if len(earlier) < len(kept) or (earlier and earlier[-1][0].get("step") == first):
            notes.append(again(first))
        if earlier and new and earlier[-1][0].get("step") == new[0][0].get("step"):
            new[0] = earlier.pop()[0] | new[0][0], new[0][1]
        kept = earlier + new
    return kept, notes


def _joined(rows: Iterable[tuple[Values, str]]) -> list[tuple[Values, str]]:
    """The rows and their places, with the consecutive ones of a step as one: a program may log it in several calls.

    Rows without a step are dropped, unless they have a validation metric.
    """
    joined: list[tuple[Values, str]] = []
    for row, place in rows:
        if "step" not in row and not any(name in EVALUATED for name in row):
            continue
        last = joined[-1][0] if joined else {}
        known = row.keys() & last.keys()
        if "step" in known and len(known) < len(row) and all(same(row[name], last[name]) for name in known):
            last.update(row)
        else:
            joined.append((row, place))
    return joined


def _refuse_to_lose(table: PlacedTable, mapped: Mapping[str, LogColumn], kept: set[str]) -> None:
    """Raise LogError for a mapped column with values that are all in rows of the other kind."""
    needed = {mapped[name].column for name in kept if name in mapped}
    for name, source in mapped.items():
        of_column = (cells[source.column] for cells in table.rows if source.column in cells)
        lost = next((cell for cell in of_column if cell.text), None)
        if lost and source.column not in needed:
            of = "with a validation metric" if name in columns("metrics") else "with a step and no validation metric"
            raise LogError(
                f"{lost.place}: column {source.column!r}: no value is kept, since {name} is of rows {of}, allowed: "
                f"values in such rows, or a map without {name}"
            )


def _row(cells: Mapping[str, PlacedCell], mapped: Mapping[str, LogColumn], run: Run) -> Values:
    """Values of a row in our columns; of step and epoch, a missing one is computed from the other."""
    row: Values = {}
    for name, source in mapped.items():
        cell = cells.get(source.column)
        if cell is not None and cell.text:
            value = source.convert(to_number(cell.text, cell.place, source.column), METRICS[name].unit)
            if name == "epoch" and not 0 <= value * run.steps_per_epoch < math.inf:
                raise LogError(f"{cell.place}: column {source.column!r}: found {value:g}, allowed: a number >= 0")
            row[name] = to_count(value, cell.place, source.column) if name in ("step", "round") else value
    if "step" not in mapped and "epoch" in row:
        row["step"] = round(row["epoch"] * run.steps_per_epoch)
    if "step" in row:
        row["epoch"] = row["step"] / run.steps_per_epoch
    return row
