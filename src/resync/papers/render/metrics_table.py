"""A table of any published metrics: one row per method, with our values beside the published ones."""

from resync.papers.render.columns import metric_table
from resync.papers.render.item import ItemData
from resync.papers.render.options import MetricsTable
from resync.papers.render.table import Table


def prepare(data: ItemData[MetricsTable]) -> Table:
    """One row per series; missing, stale and diverged runs are named in words and never enter a mean.

    A metric for which the paper publishes no value of these series has no column of published values.
    """
    return metric_table(data, data.options.metrics, data.options.decimals)
