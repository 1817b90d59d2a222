"""Options of AdamW."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from resync.optim.options._decay import DecayOptions
from resync.settings.base import PositiveNumber


class AdamW(DecayOptions):
    """Adam with decoupled weight decay (torch.optim.AdamW)."""

    name: Literal["adamw"] = Field(default="adamw", init=False)
    beta1: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.9, description="decay rate of the first moment")
    beta2: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.999, description="decay rate of the second moment")
    eps: PositiveNumber = Field(default=1e-8, description="number added to the square root of the second moment")

    @property
    def state_vectors(self) -> int:
        """Both moments."""
        return 2
