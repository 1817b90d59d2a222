"""Options of Streaming DiLoCo."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from resync.config.parts import SyncOptions, Traffic
from resync.formulas.periods import Constant, Period
from resync.settings.base import Check, Count, PositiveInt
from resync.sync.options._outer import OuterLr, OuterMomentum


class StreamingDiLoCo(SyncOptions):
    """DiLoCo in fragments of the parameters, which take turns and travel during local steps (Douillard et al. 2025)."""

    label = "Streaming DiLoCo"
    name: Literal["streaming_diloco"] = Field(default="streaming_diloco", init=False)
    period: PositiveInt = Field(
        description="local steps between two averages of a fragment, H; a multiple of fragments, one of which is "
        "averaged at the end of every round of period / fragments steps"
    )
    fragments: PositiveInt = Field(description="number of fragments, equal parts of the parameters")
    delay: Count = Field(
        default=0, description="local steps that are computed while a fragment travels; less than period / fragments"
    )
    mixing: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0,
        description="weight of a worker's own parameters when it takes over a fragment; 0: what it computed during "
        "the delay is lost; 1: it never takes over anything",
    )
    lr: OuterLr = 0.7
    momentum: OuterMomentum = 0.9
    nesterov: bool = Field(default=True, description="Nesterov's form of the outer momentum; false: heavy ball")

    def checks(self) -> Iterator[Check]:
        """Require whole rounds, in which a fragment arrives before the next one is sent."""
        if self.period % self.fragments:
            yield ("period",), f"found {self.period}, allowed: a multiple of fragments = {self.fragments}"
        elif self.delay >= self.period // self.fragments:
            allowed = f"less than period / fragments = {self.period // self.fragments}"
            yield ("delay",), f"found {self.delay}, allowed: {allowed}"

    @property
    def rule(self) -> Period:
        """A round ends with the average of one fragment."""
        return Constant(h=self.period // self.fragments)

    @property
    def traffic(self) -> Traffic:
        """An average after every round, which overlaps with the last steps of the round."""
        return Traffic(every="round", overlapped=self.delay)

    def vectors_per_round(self, state_vectors: int) -> Fraction:
        """One fragment."""
        return Fraction(1, self.fragments)
