"""The cost of a run, computed from its configuration without training and without torch.

This module gives rounds, bytes and samples. `resync.papers.plan.wallclock` gives their time on a network, and
`resync.papers.plan.forecast` compares it with published hours; these two need numpy.
"""

from resync.papers.plan.cost import Cost, Total, Volume, cost, table, table_of_totals, totals, volume

__all__ = ["Cost", "Total", "Volume", "cost", "table", "table_of_totals", "totals", "volume"]
