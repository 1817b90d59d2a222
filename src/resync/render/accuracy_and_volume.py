"""The main table of a paper: accuracy and communication volume of every method, ours beside the published ones."""

import math

from resync.config.metrics import METRICS
from resync.render.item import NONE, ItemData, Series, published_cell
from resync.render.options import accuracy_and_volume
from resync.render.table import Heading, Table
from resync.results.evidence import notation


def prepare(data: ItemData[accuracy_and_volume.AccuracyAndVolume]) -> Table:
    """One row per series; missing, stale and diverged runs are named in words and never enter a mean."""
    metric, decimals = data.options.metric, data.options.decimals
    column = METRICS[metric]
    headings = (
        Heading("Method", align="l"),
        Heading(column.title, column.unit),
        Heading("Communication volume", "%"),
        Heading("Rounds", align="r"),
        Heading("Published", column.unit),
        Heading("Published volume", "%"),
    )
    return Table(
        title=data.table_title,
        headings=headings,
        rows=tuple(_cells(data, series, metric, decimals) for series in data.series),
        records=tuple(data.record(series, (metric, "volume_percent", "rounds")) for series in data.series),
        note=data.table_note,
    )


def _cells(data: ItemData, series: Series, metric: str, decimals: int) -> tuple[str, ...]:
    ours, volume = series.evidence(metric), series.evidence("volume_percent")
    rounds = sorted({int(count) for count in series.evidence("rounds").values if math.isfinite(count)})
    return (
        series.label,
        ", ".join(filter(None, (ours.text(decimals), series.note))),
        notation(volume.mean, volume.std or None) if volume.finite else NONE,
        NONE.join(f"{value:,}" for value in (rounds[:1] + rounds[1:][-1:])) or NONE,
        published_cell(data.published_value(series, metric)),
        published_cell(data.published_value(series, "volume_percent")),
    )
