"""What a run costs, computed from its configuration without training and without torch.

Rounds, bytes and samples are here. How long they take on a network is in `resync.plan.wallclock`, beside published
hours in `resync.plan.forecast`; these two need numpy.
"""

from resync.plan.cost import Cost, Total, Volume, cost, table, table_of_totals, totals, volume

__all__ = [
    "Cost",
    "Total",
    "Volume",
    "cost",
    "table",
    "table_of_totals",
    "totals",
    "volume",
]
