"""Options of `averaging_error`."""

from typing import Literal

from pydantic import Field

from resync.config.parts import KindOptions


class AveragingError(KindOptions):
    """Remaining deviation from the mean after each mixing step of a topology, computed from its mixing matrices.

    It needs no training.
    """

    planned = True
    width = "column"
    name: Literal["averaging_error"] = Field(default="averaging_error", init=False)
