"""Every search of the runs beside its published record: a table of means, and all of them in its CSV."""

from collections.abc import Iterable, Mapping
from math import isclose
from typing import Any

from resync.papers.paper.records import COLUMNS, key_of
from resync.papers.render.item import NONE, ItemData, Series
from resync.papers.render.options import SearchRecords
from resync.papers.render.table import Cell, Heading, Table
from resync.runs.results.seed_values import SeedValues
from resync.runs.run import Run

_PUBLISHED = ("published_steps", "published_lr")
"""Further columns of the CSV, empty where there is no record."""


def prepare(data: ItemData[SearchRecords]) -> Table:
    """Two rows per series, ours and the published one, with the mean steps for every number of workers.

    Where there are records, both are means over the seeds that have one. Those without a finished run are empty.
    """
    numbers = sorted({workers for series in data.series for run in _runs(series) for workers in _searched(run)})
    headings = [Heading(title, numbers=False) for title in ("Method", "ζ²", "Of")]
    headings += [*(Heading(f"n = {workers}") for workers in numbers), Heading("Equal")]
    rows: list[tuple[Cell, ...]] = []
    records: list[dict[str, Any]] = []
    for series in data.series:
        found = _records(data, series)
        compared = [record for record in found if record["published_steps"] != ""]
        names = series.label, f"{key_of(_runs(series)[0])[2]:g}"
        equal = f"{sum(map(_is_equal, compared)):,} of {len(compared):,}" if compared else NONE
        shown = [("ours", "best_steps", equal)] + [("published", "published_steps", NONE)] * bool(compared)
        for of, column, last in shown:
            means = [_mean(compared or found, workers, column) for workers in numbers]
            rows.append(tuple(map(Cell, (*names, of, *means, last))))
        records += found
    known = [record for record in records if record["published_steps"] != ""]
    parts = [f"{data.scale} scale: mean of {data.seeds}, beside records of those that have one"]
    parts.append(f"{len(known):,} of the {len(records):,} searches have a published record")
    parts.append(f"of these {sum(map(_is_equal, known)):,} have its steps and its rate" if known else "")
    note = " · ".join(filter(None, [*parts, data.absent]))
    return Table(data.title, tuple(headings), tuple(rows), tuple(records), note, data.item.caption)


def _mean(records: Iterable[Mapping[str, Any]], workers: int, column: str) -> str:
    found = [record[column] for record in records if record["num_workers"] == workers and record[column] != ""]
    steps = SeedValues.of(map(float, found))
    return f"{steps.mean:,.1f}" if found and steps.finite else NONE


def _is_equal(record: Mapping[str, Any]) -> bool:
    pairs = zip(("best_steps", "best_lr"), _PUBLISHED, strict=True)
    return all(record[ours] and isclose(float(record[ours]), record[logged], rel_tol=1e-12) for ours, logged in pairs)


def _runs(series: Series) -> list[Run]:
    return [state.run for state in series.states]


def _searched(run: Run) -> tuple[int, ...]:
    return run.search.workers if run.search else ()


def _records(data: ItemData, series: Series) -> list[dict[str, Any]]:
    """The searches of a series, in the columns of published records, and these beside them."""
    logged = {
        (value.at_workers, value.seed): (value.value, value.rate)
        for value in data.published
        if (value.experiment, value.series, value.scale) == (*series.name, data.scale) and value.rate is not None
    }
    found = []
    for state in series.states:
        algorithm, topology, heterogeneity, distance = key_of(state.run)
        for workers in _searched(state.run):
            steps, rate = "", ""
            if state.status == "finished" and state.result:
                steps = f"{state.result.at_workers('tuned_steps', workers):.0f}"
                rate = f"{state.result.at_workers('tuned_lr', workers)!r}"
            problem = f"{heterogeneity:g}", f"{distance:g}"
            published = logged.get((workers, state.run.seed), ("", ""))
            values = algorithm, topology, *problem, workers, state.run.seed, steps, rate, *published
            found.append(dict(zip((*COLUMNS, *_PUBLISHED), values, strict=True)))
    return sorted(found, key=lambda record: (record["num_workers"], record["seed"]))
