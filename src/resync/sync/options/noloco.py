"""Options of NoLoCo."""

from typing import Annotated, Literal

from pydantic import Field

from resync.sync.options._outer import OuterMomentum
from resync.sync.options._pairs import PairOptions


class NoLoCo(PairOptions):
    """An outer step on the averages of random pairs of workers in place of all (Kolehmainen et al. 2025)."""

    label = "NoLoCo"
    name: Literal["noloco"] = Field(default="noloco", init=False)
    momentum: OuterMomentum = 0.5
    pull: Annotated[float, Field(ge=0)] = Field(
        default=0.7, description="weight with which a worker's anchor is pulled to the mean of the anchors of its pair"
    )

    def vectors_per_round(self, state_vectors: int) -> int:
        """The anchor and the change of the round."""
        return 2
