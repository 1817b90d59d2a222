"""The main table of a paper: accuracy and communication volume of every method, published beside ours."""

import math
from typing import Any

from resync.collect import COLUMNS
from resync.evidence import Evidence, notation
from resync.render.item import NONE, ItemData, Series, published_cell
from resync.render.table import Heading, Table


def prepare(data: ItemData) -> Table:
    """A row a series; what is missing, stale or diverged is said in words and never enters a mean."""
    metric, decimals = data.options["metric"], data.options["decimals"]
    column = COLUMNS[metric]
    headings = (
        Heading("Method", align="l"),
        Heading(column.title, column.unit),
        Heading("Communication volume", "%"),
        Heading("Rounds", align="r"),
        Heading("Published", column.unit),
        Heading("Published volume", "%"),
    )
    return Table(
        title=data.item.title if data.scale == "paper" else f"{data.item.title}: {data.scale}-scale stand-in",
        headings=headings,
        rows=tuple(_cells(data, series, metric, decimals) for series in data.series),
        records=tuple(_record(data, series, metric) for series in data.series),
        note=f"{data.setting} · mean ± standard deviation of {data.seeds} · published: at paper scale",
    )


def _cells(data: ItemData, series: Series, metric: str, decimals: int) -> tuple[str, ...]:
    ours, volume = _evidence(series, metric), _evidence(series, "volume_percent")
    counted = (result.final("rounds") for result in series.results("finished"))
    rounds = sorted({int(count) for count in counted if math.isfinite(count)})
    return (
        series.label,
        ", ".join(filter(None, (ours.text(decimals), series.note))),
        notation(volume.mean, volume.std or None) if volume.finite else NONE,
        NONE.join(f"{value:,}" for value in (rounds[:1] + rounds[1:][-1:])) or NONE,
        published_cell(data.published_value(series, metric)),
        published_cell(data.published_value(series, "volume_percent")),
    )


def _record(data: ItemData, series: Series, metric: str) -> dict[str, Any]:
    experiment, name = series.name
    record: dict[str, Any] = {
        "experiment": experiment,
        "series": name,
        "label": series.label,
        "scale": data.scale,
    }
    record |= {status: len(series.results(status)) for status in ("finished", "diverged")}
    record["declared"] = len(series.states)
    for key in (metric, "volume_percent", "rounds"):
        ours, published = _evidence(series, key), data.published_value(series, key)
        record |= {
            f"{key}_mean": ours.mean if ours.n else None,
            f"{key}_std": ours.std if ours.n > 1 else None,
            f"published_{key}": published.value if published else None,
            f"published_{key}_status": published.status if published else None,
        }
    return record


def _evidence(series: Series, metric: str) -> Evidence:
    return Evidence.of(result.final(metric) for result in series.results("finished"))
