"""Options of `averaging_error`."""

from typing import Literal

from pydantic import Field

from resync.config.parts import KindOptions


class AveragingError(KindOptions):
    """What is left of deviations from the mean after every mix of a topology, computed from its mixing matrices.

    Nothing is trained for it.
    """

    planned = True
    name: Literal["averaging_error"] = Field(default="averaging_error", init=False)
