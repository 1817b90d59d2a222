"""What a run costs, computed from its configuration without training and without torch."""

from resync.plan.cost import Cost, Volume, cost, table, volume
from resync.plan.translate import lr_of, period_of, phases_of

__all__ = ["Cost", "Volume", "cost", "lr_of", "period_of", "phases_of", "table", "volume"]
