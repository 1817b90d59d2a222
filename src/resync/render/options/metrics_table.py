"""Options of `metrics_table`."""

from typing import Literal

from pydantic import Field

from resync.config.metrics import TabledMetric
from resync.config.parts import KindOptions
from resync.settings.base import Several


class MetricsTable(KindOptions):
    """Table of chosen final metrics of every method, with published values beside ours."""

    name: Literal["metrics_table"] = Field(default="metrics_table", init=False)
    metrics: Several[TabledMetric] = Field(
        min_length=1,
        description="metrics in the order of their columns; times are those of the training machine",
    )
