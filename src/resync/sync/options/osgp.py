"""Options of Overlap SGP."""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from resync.config.parts import Traffic
from resync.settings.base import Count
from resync.sync.options._gossip import PushSumOptions


class OSGP(PushSumOptions):
    """Overlap SGP, push-sum gossip that overlaps with the computation of gradients (Assran et al. 2019)."""

    label = "OSGP"
    name: Literal["osgp"] = Field(default="osgp", init=False)
    staleness: Count = Field(
        default=0,
        description="iterations by which a message may be late; messages are sent every 1 + staleness iterations",
    )
    biased: bool = Field(default=False, description="ignore the push-sum weights, like the paper's biased variant")

    @property
    def traffic(self) -> Traffic:
        """A mixing step every 1 + staleness steps, which overlaps with computation until the next one."""
        return replace(super().traffic, interval=1 + self.staleness, overlap="bounded")
