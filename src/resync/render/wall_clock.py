"""The wall-clock table: published hours, the model calibrated on two of them, and the times measured here."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from resync.config import Run
from resync.config.metrics import SECONDS_PER_HOUR
from resync.config.published import CERTAINTY, PublishedValue, most_certain
from resync.plan.calibrate import Calibration, Timing, calibrate
from resync.plan.exchanges import exchanges
from resync.plan.forecast import certainty
from resync.render.item import NONE, ItemData, Series, published_cell
from resync.render.options import wall_clock
from resync.render.style import time_unit
from resync.render.table import Heading, Table
from resync.results.evidence import Evidence, decimals_of, number

_UNKNOWN = "not measured separately"
_PART = "of which communication"


@dataclass(frozen=True)
class _Method:
    """A series: its number of all-reduces of a full vector (None: it uses none), its published hours, and ours."""

    run: Run
    load: float | None
    total: PublishedValue | None
    communication: PublishedValue | None
    ours: Series | None


def prepare(data: ItemData[wall_clock.WallClock]) -> Table:
    """One row per series at paper scale; cells say whether they are published, fitted, predicted or measured.

    Raises ValueError if there are no two published times of series that differ in communication.
    """
    rows = [_row(data, run) for run in data.references]
    model = calibrate([timing for row in rows for timing in _timings(row, data.published)])
    longest = max((seconds for row in rows for seconds in _seconds(row.ours)), default=0.0)
    size, unit = time_unit(longest)
    here = f"Here, {data.scale} scale"
    headings = (
        Heading("Method", align="l"),
        Heading("All-reduces", align="r"),
        *(Heading(title, "h") for title in ("Published", _PART, "Model", _PART)),
        Heading("Model error", "%", align="r"),
        *(Heading(title, unit) for title in (here, _PART)),
    )
    return Table(
        title=data.item.title,
        headings=headings,
        rows=tuple((*_published_cells(row), *_model_cells(row, model), *_own_cells(row.ours, size)) for row in rows),
        records=tuple(_record(row, model) for row in rows),
        note=_note(model, rows),
    )


def _row(data: ItemData, run: Run) -> _Method:
    name = run.experiment, run.series
    found = exchanges(run)
    load = sum(exchange.count * exchange.vectors for exchange in found)
    return _Method(
        run,
        load if all(exchange.to == "all" for exchange in found) else None,
        most_certain(data.published, *name, "training_hours", data.item.id),
        most_certain(data.published, *name, "communication_hours", data.item.id),
        next((series for series in data.series if series.name == name), None),
    )


def _timings(row: _Method, published: Iterable[PublishedValue]) -> list[Timing]:
    """The published time of the row that can calibrate the model, if there is one."""
    if row.load is None or row.total is None or row.total.value is None:
        return []
    status = certainty(row.run, row.total, published)
    rounding = 0.5 * 10.0 ** -decimals_of(row.total.value)
    return [Timing(row.run.id, row.load, row.total.value, CERTAINTY.index(status), rounding)]


def _published_cells(row: _Method) -> tuple[str, ...]:
    averages = NONE if row.load is None else f"{row.load:,}"
    return row.run.label, averages, published_cell(row.total), published_cell(row.communication)


def _model_cells(row: _Method, model: Calibration) -> tuple[str, ...]:
    if row.load is None:
        return NONE, NONE, NONE
    word = _basis(row, model)
    communication = f"{model.communication(row.load):.2f} ± {model.communication_rounding(row.load):.2f}"
    if word == "fitted":
        return f"{model.total(row.load):.2f}, fitted", f"{communication}, derived", NONE
    error = _error(row, model)
    return (
        f"{model.total(row.load):.2f} ± {model.total_rounding(row.load):.2f}, {word}",
        f"{communication}, {word}",
        NONE if error is None else f"{100 * error:+.1f}",
    )


def _own_cells(ours: Series | None, size: float) -> tuple[str, ...]:
    """Total and communication time of the finished seeds, in units of `size` seconds."""
    if ours is None:
        return NONE, NONE
    clocks = (
        Evidence.of(seconds / size for seconds in _seconds(ours)),
        Evidence.of(seconds / size for seconds in ours.evidence("communication_seconds").values),
    )
    measured = (f"{clock.text()}, measured" if clock.finite else _UNKNOWN if clock.n else "" for clock in clocks)
    total, communication = measured
    return ", ".join(filter(None, (total, ours.note))), communication or NONE


def _record(row: _Method, model: Calibration) -> dict[str, Any]:
    run, load = row.run, row.load
    hours = {
        f"here_{name}_mean": row.ours.evidence(metric) if row.ours else Evidence(())
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
    """Origin of the model's numbers in a row, in a word or two."""
    if row.run.id in (model.more.name, model.less.name):
        return "fitted"
    status = CERTAINTY[model.certainty[0]]
    return "predicted" if status == "verified" else f"predicted from {status}"


def _error(row: _Method, model: Calibration) -> float | None:
    """(model - published) / published for a row that was not fitted."""
    if row.load is None or row.total is None or row.total.value is None or _basis(row, model) == "fitted":
        return None
    return model.total(row.load) / row.total.value - 1


def _seconds(ours: Series | None) -> list[float]:
    return [result.final("training_seconds") for result in ours.results("finished")] if ours else []


def _note(model: Calibration, rows: Iterable[_Method]) -> str:
    pair = " and ".join(f"{one.name.split('/')[2]} ({CERTAINTY[one.certainty]})" for one in (model.more, model.less))
    seconds = number(model.cost * SECONDS_PER_HOUR, 3)
    derived = any(value and value.status == "derived" for row in rows for value in (row.total, row.communication))
    return " · ".join([
        f"model: {number(model.compute)} h of computation + {seconds} s per all-reduce, fitted to {pair}",
        "±: rounding of the fitted hours",
        *(["derived: from verified hours by the same formula, so not a test of it"] if derived else []),
    ])  # fmt: skip
