"""Options of `slow_sde`."""

from typing import Literal

from pydantic import Field

from resync.config.parts import KindOptions


class SlowSDE(KindOptions):
    """Slow SDE of Local SGD on a problem with two parameters: predictions as lines and simulations as points.

    It needs no training and shows no series.
    """

    planned = True
    shows_series = False
    name: Literal["slow_sde"] = Field(default="slow_sde", init=False)
