"""Every search of the runs: a table of means, and all of them in its CSV."""

from typing import Any

from resync.papers.paper.records import COLUMNS, key_of
from resync.papers.render.item import NONE, ItemData, Series
from resync.papers.render.options import SearchRecords
from resync.papers.render.searched_steps import found_steps, published_steps
from resync.papers.render.table import Cell, Heading, Table
from resync.runs.run import Run


def prepare(data: ItemData[SearchRecords]) -> Table:
    """A row per series with its mean steps for every number of workers; those without a finished run are empty."""
    found = [found_steps(series) for series in data.series]
    numbers = sorted({workers for series in data.series for run in _runs(series) for workers in _searched(run)})
    headings = [Heading("Method", numbers=False), Heading("Heterogeneity", numbers=False)]
    headings += [Heading(f"n = {workers}") for workers in numbers]
    rows = []
    for series, steps in zip(data.series, found, strict=True):
        cells = [f"{steps[n].mean:,.1f}" if n in steps and steps[n].finite else NONE for n in numbers]
        rows.append(tuple(map(Cell, (series.label, f"{key_of(_runs(series)[0])[2]:g}", *cells))))
    records = tuple(record for series in data.series for record in _records(series))
    known = sum(each.n for series in data.series for each in published_steps(data, series).values())
    published = f"{known} of the {len(records)} searches have a published record"
    parts = [f"{data.scale} scale: mean of {data.seeds}", published, data.absent]
    note = " · ".join(filter(None, parts))
    return Table(data.title, tuple(headings), tuple(rows), records, note, data.item.caption)


def _runs(series: Series) -> list[Run]:
    return [state.run for state in series.states]


def _searched(run: Run) -> tuple[int, ...]:
    return run.search.workers if run.search else ()


def _records(series: Series) -> list[dict[str, Any]]:
    """The searches of a series, in the columns of published records."""
    found = []
    for state in series.states:
        algorithm, topology, heterogeneity, distance = key_of(state.run)
        for workers in _searched(state.run):
            steps, rate = "", ""
            if state.status == "finished" and state.result:
                steps = f"{state.result.at_workers('tuned_steps', workers):.0f}"
                rate = f"{state.result.at_workers('tuned_lr', workers)!r}"
            problem = f"{heterogeneity:g}", f"{distance:g}"
            values = algorithm, topology, *problem, workers, state.run.seed, steps, rate
            found.append(dict(zip(COLUMNS, values, strict=True)))
    return sorted(found, key=lambda record: (record["num_workers"], record["seed"]))
