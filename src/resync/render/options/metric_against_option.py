"""Options of `metric_against_option`."""

from typing import Annotated, Literal

from pydantic import Field

from resync.config.metrics import TabledMetric
from resync.config.parts import KindOptions
from resync.settings.base import Text


class MetricAgainstOption(KindOptions):
    """A number at the end of a run against one of its options, such as the period H, one point per series.

    Series without the option are horizontal lines. Open points and dotted lines are published values, pale ones
    those that were only recalled.
    """

    width = "column"
    name: Literal["metric_against_option"] = Field(default="metric_against_option", init=False)
    option: Annotated[str, Field(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)*$")] = Field(
        description="setting of a run with numbers as values, as its path in run.yaml, such as `sync.period.h`"
    )
    axis: Text | None = Field(default=None, description="title of the horizontal axis; null: the option")
    metric: TabledMetric = Field(default="val_top1", description="number at the end of a run, in the left panel")
    time: bool = Field(default=False, description="whether a right panel shows the time per step")
