"""Every evaluation of the runs, in the columns and digits of a published log."""

from typing import Any

from resync.papers.render.item import NONE, ItemData, Series
from resync.papers.render.options import EvaluationLog
from resync.papers.render.table import Cell, Heading, Table

_HEADINGS = ("Steps", "Simulated time / s", "Accuracy", "Loss")


def prepare(data: ItemData[EvaluationLog]) -> Table:
    """A row for each evaluation; a step is one of all workers together. Without a finished run: one empty row."""
    records = tuple(record for series in data.series for record in _records(series))
    labels = {series.name[1]: series.label for series in data.series}
    rows = [
        (Cell(labels[record["run"]]), *(Cell(str(value)) for value in list(record.values())[1:])) for record in records
    ]
    note = " · ".join(filter(None, [f"{data.scale} scale", data.absent]))
    headings = (Heading("Run", numbers=False), *map(Heading, _HEADINGS))
    empty = (Cell(NONE),) * len(headings)
    return Table(data.title, headings, tuple(rows) or (empty,), records, note, data.item.caption)


def _records(series: Series) -> list[dict[str, Any]]:
    """The evaluations of the finished runs of a series."""
    return [
        {
            "run": series.name[1],
            "step": step * state.run.workers,
            "simulated_time": f"{seconds:.2f}",
            "accuracy": f"{percent / 100:.2f}",
            "loss": f"{loss:.6f}",
        }
        for state in series.states
        if state.status == "finished" and state.result
        for step, seconds, percent, loss in zip(
            *(state.result.curve(name).tolist() for name in ("step", "virtual_seconds", "val_top1", "val_loss")),
            strict=True,
        )
    ]
