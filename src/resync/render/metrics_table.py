"""A table of any published metrics: one row per method, with our values beside the published ones."""

import math

from resync.config.metrics import METRICS
from resync.render.item import NONE, ItemData, Series, published_cell
from resync.render.options import metrics_table
from resync.render.table import Heading, Table

MIN_DECIMALS, SIGNIFICANT_DIGITS = 2, 3


def prepare(data: ItemData[metrics_table.MetricsTable]) -> Table:
    """One row per series; missing, stale and diverged runs are named in words and never enter a mean.

    A metric for which the paper publishes no value of these series has no column of published values.
    """
    columns: list[tuple[str, bool]] = [(metric, _is_published(data, metric)) for metric in data.options.metrics]
    headings = [Heading("Method", align="l")]
    for metric, published in columns:
        column = METRICS[metric]
        headings += [Heading(column.title, column.unit)] + [Heading("Published", column.unit)] * published
    return Table(
        title=data.table_title,
        headings=tuple(headings),
        rows=tuple(_cells(data, series, columns) for series in data.series),
        records=tuple(data.record(series, data.options.metrics) for series in data.series),
        note=data.table_note,
    )


def _is_published(data: ItemData, metric: str) -> bool:
    return any(data.published_value(series, metric) for series in data.series)


def _cells(data: ItemData, series: Series, columns: list[tuple[str, bool]]) -> tuple[str, ...]:
    """The label, then our value and the published one of each metric; the first metric also names missing runs."""
    cells = [series.label]
    for metric, published in columns:
        ours = series.evidence(metric)
        note = series.note if len(cells) == 1 else ""
        cells.append(", ".join(filter(None, (ours.text(_decimals(ours.mean)), note))) or NONE)
        cells += [published_cell(data.published_value(series, metric))] * published
    return tuple(cells)


def _decimals(value: float) -> int:
    """Number of decimals that shows enough digits of times and losses near 0."""
    if not math.isfinite(value) or value == 0:
        return MIN_DECIMALS
    return max(MIN_DECIMALS, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(value))))
