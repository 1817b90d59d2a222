"""Options of `wall_clock`."""

from typing import Literal

from pydantic import Field

from resync.config.parts import KindOptions


class WallClock(KindOptions):
    """Table of hours and communication hours of every method.

    Shown are published times, the wall-clock model calibrated on two published totals, and times measured here.
    """

    name: Literal["wall_clock"] = Field(default="wall_clock", init=False)
