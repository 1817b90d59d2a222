"""The main table of a paper: accuracy and communication volume of every method, ours beside the published ones."""

from resync.render.columns import metric_table
from resync.render.item import ItemData
from resync.render.options import AccuracyAndVolume
from resync.render.table import Table


def prepare(data: ItemData[AccuracyAndVolume]) -> Table:
    """One row per series; missing, stale and diverged runs are named in words and never enter a mean."""
    return metric_table(data, (data.options.metric, "volume_percent", "rounds"), data.options.decimals)
