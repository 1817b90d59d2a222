"""Options of `wall_clock`."""

from typing import Literal

from pydantic import Field

from resync.config.parts import KindOptions


class WallClock(KindOptions):
    """Table of hours and communication hours of every method.

    As published, by the wall-clock model that two published totals calibrate, and as measured here.
    """

    name: Literal["wall_clock"] = Field(default="wall_clock", init=False)
