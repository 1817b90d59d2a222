"""Options of `accuracy_and_volume`."""

from typing import Annotated, Literal

from pydantic import Field

from resync.config.metrics import TabledMetric
from resync.config.parts import KindOptions


class AccuracyAndVolume(KindOptions):
    """Table of final accuracy, communication volume and rounds of every method, with published values beside ours."""

    name: Literal["accuracy_and_volume"] = Field(default="accuracy_and_volume", init=False)
    metric: TabledMetric = Field(default="val_top1", description="final metric of a run")
    decimals: Annotated[int, Field(ge=0, le=6)] = Field(default=2, description="number of decimals of the metric")
