"""The common options of algorithms that average pairs of workers after every round."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from resync.config.parts import Traffic
from resync.formulas.topology import cycle
from resync.settings.base import Check
from resync.settings.options import Course
from resync.sync.options._outer import OuterLr, OuterMomentum
from resync.sync.options._rounds import RoundsOptions


class PairOptions(RoundsOptions):
    """The options of an outer step on averages of pairs of workers."""

    lr: OuterLr = 0.7
    momentum: OuterMomentum = 0.9
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
        """Messages to the peers after every round."""
        return Traffic(every="round", topology=self.topology)
