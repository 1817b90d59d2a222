"""The wall-clock table: published hours, the model calibrated on two of them, and the times measured here."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from resync.papers.paper.published import CERTAINTY, PublishedValue, most_certain
from resync.papers.plan.calibrate import Calibration, Timed, calibrate
from resync.papers.plan.forecast import certainty
from resync.papers.render.columns import FITTED, MARKS, published_cell, state_marks, state_notes, status_notes
from resync.papers.render.item import NONE, ItemData, Series
from resync.papers.render.options import WallClock
from resync.papers.render.style import time_unit
from resync.papers.render.table import Cell, Heading, Table
from resync.runs.exchanges import exchanges
from resync.runs.metrics.registry import SECONDS_PER_HOUR
from resync.runs.results.seed_values import SeedValues, decimals_of, notation, number
from resync.runs.run import Run
from resync.runs.run.in_words import counted

_PART = "communication"


@dataclass(frozen=True)
class _Method:
    """A series: its number of all-reduces of a full vector (None: it uses none), its published hours, and ours."""

    run: Run
    load: float | None
    total: PublishedValue | None
    communication: PublishedValue | None
    ours: Series | None


def prepare(data: ItemData[WallClock]) -> Table:
    """One row per series at paper scale, with published, modelled and measured times.

    Raises ValueError if no two published times of averages over all workers are known.
    """
    rows = [_row(data, run) for run in data.references]
    model = calibrate([timing for row in rows for timing in _timings(row, data.published)])
    longest = max((seconds for row in rows for seconds in _measured(row.ours)), default=0.0)
    size, unit = time_unit(longest)
    trained = bool(data.series)
    headings = (
        Heading("Method", numbers=False),
        Heading("All-reduces"),
        *(Heading(title, group="Published (h)") for title in ("total", _PART)),
        *(Heading(title, "h", "Model") for title in ("total", _PART)),
        Heading("error", "%", "Model"),
        *(Heading(title, group=f"Here ({unit})") for title in ("total", _PART) if trained),
    )
    cells = [
        (
            Cell(row.run.label), Cell(NONE if row.load is None else f"{row.load:,.0f}"), published_cell(row.total),
            published_cell(row.communication), *_model_cells(row, model),
            *(_own_cells(data, row.ours, size) if trained else ()),
        )
        for row in rows
    ]  # fmt: skip
    note = " · ".join([*_notes(model, rows), *status_notes(cells), *state_notes(_marks(data))])
    records = tuple(_record(row, model) for row in rows)
    return Table(data.item.title, headings, tuple(cells), records, note, data.item.caption)


def _row(data: ItemData, run: Run) -> _Method:
    name = run.experiment, run.series
    kinds = exchanges(run)
    load = sum(exchange.count * exchange.vectors for exchange in kinds)
    return _Method(
        run,
        load if all(exchange.to == "all" for exchange in kinds) else None,
        most_certain(data.published, *name, "training_hours", data.item.id),
        most_certain(data.published, *name, "communication_hours", data.item.id),
        next((series for series in data.series if series.name == name), None),
    )


def _timings(row: _Method, published: Iterable[PublishedValue]) -> list[Timed]:
    if row.load is None or row.total is None or row.total.value is None:
        return []
    status = certainty(row.run, row.total, published)
    rounding = 0.5 * 10.0 ** -decimals_of(row.total.value)
    return [Timed(row.run.id, row.load, row.total.value, CERTAINTY.index(status), rounding)]


def _model_cells(row: _Method, model: Calibration) -> tuple[Cell, ...]:
    if row.load is None:
        return (Cell(NONE),) * 3
    communication = f"{model.communication(row.load):.2f} ± {model.communication_rounding(row.load):.2f}"
    if _basis(row, model) == "fitted":
        total = Cell(f"{model.total(row.load):.2f}", mark=FITTED)
        return total, Cell(communication, mark=MARKS["derived"]), Cell(NONE)
    error = _error(row, model)
    return (
        Cell(f"{model.total(row.load):.2f} ± {model.total_rounding(row.load):.2f}"),
        Cell(communication),
        Cell(NONE if error is None else f"{100 * error:+.1f}"),
    )


def _marks(data: ItemData) -> dict[str, str]:
    return state_marks(series.note for series in data.series if series.results("finished"))


def _own_cells(data: ItemData, ours: Series | None, size: float) -> tuple[Cell, ...]:
    if ours is None:
        return Cell(NONE), Cell(NONE)
    total, communication = (
        SeedValues.of(seconds / size for seconds in times)
        for times in (_measured(ours), _measured(ours, "communication_seconds"))
    )
    if not total.n:
        return Cell(ours.note or NONE), Cell(NONE)
    return (
        Cell(notation(total.mean, total.std), mark=_marks(data).get(ours.note, "")),
        Cell(notation(communication.mean, communication.std) if communication.finite else NONE),
    )


def _record(row: _Method, model: Calibration) -> dict[str, Any]:
    run, load = row.run, row.load
    hours = {
        f"here_{name}_mean": SeedValues.of(_measured(row.ours, metric))
        for name, metric in (("hours", "training_hours"), ("communication_hours", "communication_hours"))
    }
    return {
        "experiment": run.experiment,
        "series": run.series,
        "label": run.label,
        "averages": load,
        "published_hours": row.total.value if row.total else None,
        "published_hours_status": row.total.status if row.total else None,
        "published_communication_hours": row.communication.value if row.communication else None,
        "published_communication_hours_status": row.communication.status if row.communication else None,
        "model_basis": None if load is None else _basis(row, model),
        "model_hours": None if load is None else model.total(load),
        "model_hours_rounding": None if load is None else model.total_rounding(load),
        "model_communication_hours": None if load is None else model.communication(load),
        "model_communication_hours_rounding": None if load is None else model.communication_rounding(load),
        "model_relative_error": _error(row, model),
        "finished": len(row.ours.results("finished")) if row.ours else 0,
        **{name: evidence.mean if evidence.n else None for name, evidence in hours.items()},
    }


def _basis(row: _Method, model: Calibration) -> str:
    if row.run.id in (model.more.name, model.less.name):
        return "fitted"
    status = CERTAINTY[model.certainty[0]]
    return "predicted" if status == "verified" else f"predicted from {status}"


def _error(row: _Method, model: Calibration) -> float | None:
    if row.load is None or row.total is None or row.total.value is None or _basis(row, model) == "fitted":
        return None
    return model.total(row.load) / row.total.value - 1


def _measured(ours: Series | None, metric: str = "training_seconds") -> list[float]:
    return [result.final(metric) for result in ours.results("finished")] if ours else []


def _notes(model: Calibration, rows: Iterable[_Method]) -> list[str]:
    labels = {row.run.id: row.run.label for row in rows}
    pair = " and ".join(f"{labels[one.name]} ({CERTAINTY[one.certainty]})" for one in (model.more, model.less))
    seconds = number(model.cost * SECONDS_PER_HOUR, 3)
    counts = {len(_measured(row.ours)) for row in rows} - {0}
    derived = any(value and value.status == "derived" for row in rows for value in (row.total, row.communication))
    return [
        f"model: {number(model.compute)} h of computation + {seconds} s per all-reduce, fitted to {pair}",
        f"{FITTED} fitted",
        "± of the model: rounding of the fitted hours",
        *(["derived: from verified hours by the same formula, so not a test of it"] if derived else []),
        *([f"here: {counted(counts, 'seed')}"] if counts else []),
    ]
