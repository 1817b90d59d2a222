"""Options of Stochastic Gradient Push."""

from typing import Literal

from pydantic import Field

from resync.sync.options._gossip import PushSumOptions


class SGP(PushSumOptions):
    """Stochastic Gradient Push, synchronous push-sum gossip after every step (Assran et al. 2019, Algorithm 1)."""

    label = "SGP"
    name: Literal["sgp"] = Field(default="sgp", init=False)
