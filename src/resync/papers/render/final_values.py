"""Rates that were searched and errors of the trainings with them, beside the published ones."""

from collections.abc import Iterator
from typing import Any

from resync.papers.render.item import NONE, ItemData, Series
from resync.papers.render.options import FinalValues
from resync.papers.render.table import Cell, Heading, Table
from resync.runs.metrics.registry import LEAST_ERROR, NOISY_TRAININGS
from resync.runs.run import Run

_COLUMNS = ("tuned_steps", "tuned_lr", "final_error", "noisy_error")
_GROUPS = ("Steps", "Learning rate", "Error", "Error with noise")
_RANGE = ("noisy_error_min", "noisy_error_max")


def prepare(data: ItemData[FinalValues]) -> Table:
    """A row per series and number of workers; those without a finished run are empty."""
    records = [record for series in data.series for record in _records(data, series)]
    shown = [name for name in _COLUMNS if any(record[name] is not None for record in records)] or ["final_error"]
    headings = [Heading("Method", numbers=False), Heading("Heterogeneity"), Heading("n")]
    for name in shown:
        group = _GROUPS[_COLUMNS.index(name)]
        headings += [Heading("ours", group=group), Heading("published", group=group)]
    rows = []
    for record in records:
        cells = [record["label"], f"{record['heterogeneity']:g}", str(record["num_workers"])]
        for name in shown:
            cells += [_text(record, name), _number(record[f"published_{name}"])]
        rows.append(tuple(map(Cell, cells)))
    noisy = f"with noise: mean, and the smallest and largest of {NOISY_TRAININGS} trainings"
    noise = noisy if "noisy_error" in shown else ""
    note = " · ".join(filter(None, [f"{data.scale} scale", noise, data.absent]))
    return Table(data.title, tuple(headings), tuple(rows), tuple(records), note, data.item.caption)


def _records(data: ItemData, series: Series) -> Iterator[dict[str, Any]]:
    values = [value for value in data.published if (value.experiment, value.series) == series.name]
    for state in series.states:
        run = state.run
        known = {(value.metric, value.at_workers): value for value in values if value.seed == run.seed}
        for workers in run.search.workers if run.search else ():
            result = state.result if state.status == "finished" else None
            record: dict[str, Any] = {
                "experiment": run.experiment, "series": run.series, "label": series.label,
                "heterogeneity": run.data.options["heterogeneity"], "num_workers": workers, "seed": run.seed,
            }  # fmt: skip
            for name in (*_COLUMNS, *_RANGE):
                measured = result is not None and name in result.evaluations and not _unsearched(run, name)
                record[name] = result.at_workers(name, workers) if measured and result else None
            for name in _COLUMNS:
                value = known.get((name, workers))
                record[f"published_{name}"] = value.value if value else None
            steps = known.get(("tuned_steps", workers))
            record["published_tuned_lr"] = steps.rate if steps else None
            yield record


def _unsearched(run: Run, name: str) -> bool:
    """Whether a number is one of a search, which the run has not made."""
    return name.startswith("tuned_") and run.search is not None and run.search.rule == "given"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.6g}"


def _text(record: dict[str, Any], name: str) -> str:
    text = _number(record[name])
    if name == "final_error" and record[name] is not None and record[name] < LEAST_ERROR:
        return f"< {LEAST_ERROR:g}"
    if name != "noisy_error" or record[name] is None:
        return text
    low, high = (f"{record[end]:.2g}" for end in _RANGE)
    return f"{record[name]:.2g} ({low} to {high})"
