"""Options of Overlap SGP."""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from resync.config.parts import Traffic
from resync.settings.base import Count
from resync.sync.options._gossip import PushSumOptions


class OSGP(PushSumOptions):
    """Overlap SGP, push-sum gossip whose messages travel while gradients are taken (Assran et al. 2019)."""

    label = "OSGP"
    name: Literal["osgp"] = Field(default="osgp", init=False)
    staleness: Count = Field(
        default=0, description="iterations that a message may be late; a message is sent every 1 + staleness iterations"
    )
    biased: bool = Field(default=False, description="ignore the push-sum weights, as the paper's biased variant")

    @property
    def traffic(self) -> Traffic:
        """A message that travels while gradients are taken keeps the next one waiting."""
        return replace(super().traffic, interval=1 + self.staleness, overlap="bounded")
