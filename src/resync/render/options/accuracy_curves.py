"""Options of `accuracy_curves`."""

from typing import Literal

from pydantic import Field

from resync.config.metrics import DrawnMetric
from resync.config.parts import KindOptions
from resync.render.options._curves import Band, Cut


class AccuracyCurves(KindOptions):
    """Validation accuracy or loss against epochs or steps and against training time, side by side."""

    name: Literal["accuracy_curves"] = Field(default="accuracy_curves", init=False)
    metric: DrawnMetric = Field(default="val_top1", description="column of metrics.csv to draw")
    by: Literal["epoch", "step"] = Field(default="epoch", description="x axis of the left panel")
    band: Band = "range"
    cut: Cut = 0.15
