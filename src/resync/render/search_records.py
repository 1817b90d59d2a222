"""Every search of the runs: a table of means, and all of them in its CSV."""

from typing import Any

from resync.paper.records import COLUMNS, key_of
from resync.render.item import NONE, ItemData, Series, require_results
from resync.render.options import SearchRecords
from resync.render.searched_steps import found_steps, published_steps
from resync.render.table import Cell, Heading, Table


def prepare(data: ItemData[SearchRecords]) -> Table:
    """A row per series with its mean steps for every number of workers."""
    require_results(data)
    found = [found_steps(series) for series in data.drawn]
    numbers = sorted({workers for steps in found for workers in steps})
    headings = [Heading("Method", numbers=False), Heading("ζ²", numbers=False)]
    headings += [Heading(f"n = {workers}") for workers in numbers]
    rows = []
    for series, steps in zip(data.drawn, found, strict=True):
        cells = [f"{steps[n].mean:,.1f}" if n in steps and steps[n].finite else NONE for n in numbers]
        rows.append(tuple(map(Cell, (series.label, f"{key_of(series.states[0].run)[2]:g}", *cells))))
    records = tuple(record for series in data.drawn for record in _records(series))
    known = sum(each.n for series in data.drawn for each in published_steps(data, series).values())
    parts = [
        f"{data.scale} scale: mean of {data.seeds}",
        f"{known} of the {len(records)} searches have a published record",
    ]
    note = " · ".join(filter(None, [*parts, data.absent]))
    return Table(data.title, tuple(headings), tuple(rows), records, note, data.item.caption)


def _records(series: Series) -> list[dict[str, Any]]:
    """The searches of a series, in the columns of published records."""
    found = []
    for state in series.states:
        if state.status != "finished" or state.result is None:
            continue
        algorithm, topology, heterogeneity, distance = key_of(state.run)
        for _, row in state.result.metrics.iterrows():
            values = (
                algorithm, topology, f"{heterogeneity:g}", f"{distance:g}", int(row["searched_workers"]),
                state.run.seed, f"{row['tuned_steps']:.0f}", row["tuned_lr"],
            )  # fmt: skip
            found.append(dict(zip(COLUMNS, values, strict=True)))
    return sorted(found, key=lambda record: (record["num_workers"], record["seed"]))
