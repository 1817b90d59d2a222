"""Options of `period_and_accuracy`."""

from typing import Literal

from pydantic import Field

from resync.config.metrics import DrawnMetric
from resync.config.parts import KindOptions
from resync.render.options._curves import Band, Cut


class PeriodAndAccuracy(KindOptions):
    """Period H of every round (log2) above validation accuracy, both against epochs."""

    width = "column"
    name: Literal["period_and_accuracy"] = Field(default="period_and_accuracy", init=False)
    metric: DrawnMetric = Field(default="val_top1", description="column of metrics.csv in the lower panel")
    band: Band = "range"
    cut: Cut = 0.15

    @property
    def curves(self) -> tuple[str, ...]:
        return (self.metric, "h")
