"""Options of DiLoCo."""

from typing import Literal

from pydantic import Field

from resync.sync.options._outer import OuterOptions


class DiLoCo(OuterOptions):
    """Local steps, then an outer step of Nesterov momentum on the workers' average (Douillard et al. 2023).

    With lr 1 and momentum 0 it is Local SGD; with one worker, SNOO.
    """

    label = "DiLoCo"
    name: Literal["diloco"] = Field(default="diloco", init=False)
