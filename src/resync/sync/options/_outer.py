"""The common options of outer optimizers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from resync.settings.base import PositiveNumber
from resync.sync.options._rounds import RoundsOptions

OuterLr = Annotated[PositiveNumber, Field(description="outer learning rate")]
OuterMomentum = Annotated[float, Field(ge=0, lt=1, description="outer momentum")]


class OuterOptions(RoundsOptions):
    """The options of an algorithm with an outer step of momentum after every round (resync.sync.outer).

    A constant pseudo-gradient is passed on with the gain lr / (1 - momentum).
    """

    lr: OuterLr = 0.7
    momentum: OuterMomentum = 0.9
    nesterov: bool = Field(default=True, description="Nesterov's form of the outer momentum; false: heavy ball")
