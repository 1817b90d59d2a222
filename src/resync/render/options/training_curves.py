"""Options of `training_curves`."""

from typing import Literal

from pydantic import Field

from resync.config.metrics import DrawnMetric
from resync.config.parts import KindOptions
from resync.render.options._curves import Band, Cut
from resync.settings.base import Several


class TrainingCurves(KindOptions):
    """Metrics of every evaluation against epochs, one panel per metric."""

    name: Literal["training_curves"] = Field(default="training_curves", init=False)
    metrics: Several[DrawnMetric] = Field(
        min_length=2, max_length=4, description="columns of metrics.csv, one panel per column"
    )
    band: Band = "range"
    cut: Cut = 0.1

    @property
    def curves(self) -> tuple[str, ...]:
        return tuple(self.metrics)
