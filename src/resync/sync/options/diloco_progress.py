"""Options of DiLoCo with a correction for rounds of unequal progress."""

from typing import Annotated, Literal

from pydantic import Field

from resync.settings.base import PositiveNumber
from resync.sync.options._outer import OuterOptions


class DiLoCoProgress(OuterOptions):
    """DiLoCo whose outer step follows the progress of a round, for rounds of unequal length as those of QSR.

    An ablation of resync's own, not a published method.
    """

    label = "DiLoCo, corrected"
    name: Literal["diloco_progress"] = Field(default="diloco_progress", init=False)
    reference: Annotated[
        PositiveNumber,
        Field(
            description="sum of the learning rates of the steps of a round whose outer step is that of DiLoCo, such as "
            "the smallest H times the largest learning rate"
        ),
    ]
