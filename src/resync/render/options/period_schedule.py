"""Options of `period_schedule`."""

from typing import Literal

from pydantic import Field

from resync.config.parts import KindOptions


class PeriodSchedule(KindOptions):
    """Learning rate above the period H of every round (log2), against epochs, computed from the configuration.

    It needs no training.
    """

    planned = True
    width = "column"
    name: Literal["period_schedule"] = Field(default="period_schedule", init=False)
