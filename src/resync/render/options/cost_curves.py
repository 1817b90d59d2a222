"""Options of `cost_curves`."""

from typing import Literal

from pydantic import Field

from resync.config.metrics import DrawnMetric
from resync.config.parts import KindOptions
from resync.render.options._curves import Band, Cut
from resync.settings.base import PositiveNumber


class CostCurves(KindOptions):
    """A metric against steps, against the bytes that a worker has sent, and against modelled time, side by side.

    The time is that of the wall-clock model on the given network, not of the machine that trained.
    """

    name: Literal["cost_curves"] = Field(default="cost_curves", init=False)
    metric: DrawnMetric = Field(default="val_loss", description="column of metrics.csv to draw")
    network: Literal["ethernet_10g", "ethernet_25g", "infiniband_100g"] = Field(
        default="ethernet_25g", description="link between workers, in the model of time"
    )
    compute: PositiveNumber = Field(description="seconds of computing per step of a worker, in the model of time")
    band: Band = "range"
    cut: Cut = 0.15

    @property
    def curves(self) -> tuple[str, ...]:
        return (self.metric,)
