"""Options of `slow_sde`."""

from typing import Literal

from pydantic import Field

from resync.config.parts import KindOptions


class SlowSDE(KindOptions):
    """Slow SDE of Local SGD on a problem with two parameters, its prediction as lines and a simulation as points.

    Nothing is trained for it, and it shows no series.
    """

    planned = True
    shows_series = False
    name: Literal["slow_sde"] = Field(default="slow_sde", init=False)
