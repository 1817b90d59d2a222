"""Options of NoLoCo."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from resync.config.parts import Traffic
from resync.formulas.topology import cycle
from resync.settings.base import Check
from resync.settings.options import Course
from resync.sync.options._outer import OuterLr, OuterMomentum
from resync.sync.options._rounds import RoundsOptions


class NoLoCo(RoundsOptions):
    """An outer step on the averages of random pairs of workers in place of all (Kolehmainen et al. 2025)."""

    label = "NoLoCo"
    name: Literal["noloco"] = Field(default="noloco", init=False)
    lr: OuterLr = 0.7
    momentum: OuterMomentum = 0.5
    pull: Annotated[float, Field(ge=0)] = Field(
        default=0.7, description="weight with which a worker's anchor is pulled to the mean of the anchors of its pair"
    )
    topology: Literal["random_matching", "ou_equidyn", "hypercube", "base_graph", "complete"] = Field(
        default="random_matching",
        description="graph whose mixing steps average instead of pairs drawn at random; complete: over all workers",
    )

    def checks_in(self, course: Course) -> Iterator[Check]:
        """Require a graph for this number of workers."""
        yield from super().checks_in(course)
        try:
            cycle(self.topology, course.workers)
        except ValueError as error:
            yield ("topology",), str(error)

    @property
    def traffic(self) -> Traffic:
        """Two vectors to the peer after every round: the anchor and the change of the round."""
        return Traffic(every="round", topology=self.topology, vectors=2)

    def vectors_per_round(self, state_vectors: int) -> int:
        """The anchor and the change of the round."""
        return 2
