"""Options of Overlap SGP."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from pydantic import Field

from resync.config.parts import Traffic
from resync.formulas.topology import resolve
from resync.settings.base import Check, Count
from resync.settings.errors import show
from resync.sync.options._gossip import PushSumOptions


class OSGP(PushSumOptions):
    """Overlap SGP, push-sum gossip that overlaps with the computation of gradients (Assran et al. 2019).

    The paper's tau counts the gradient steps that are taken while a message travels: its tau = 1 is staleness 0 here.
    """

    label = "OSGP"
    name: Literal["osgp"] = Field(default="osgp", init=False)
    staleness: Count = Field(
        default=0,
        description="largest number of iterations by which a message may be late; 0: it travels while one gradient is "
        "computed, and one is sent in every iteration (tau = 1 in the paper); above 0: the lateness of each message is "
        "drawn from 0 to this number, and a worker sends the next one when it has arrived",
    )
    biased: bool = Field(
        default=False,
        description="ignore the push-sum weights, like the paper's biased variant (unverified: its definition); "
        "gradients and evaluations are at the shares that the workers keep, without what travels",
    )

    def checks(self) -> Iterator[Check]:
        """Require that biased workers always keep the same share: without weights nothing makes up for a change."""
        yield from super().checks()
        if self.biased and self.staleness:
            yield ("staleness",), f"found {self.staleness} with biased, allowed: 0"
        if self.biased and not isinstance(self.peers, int):
            yield ("peers",), "found phases with biased, allowed: an integer"
        if resolve(self.topology).weighted:
            for name in ("biased", "staleness"):
                if value := getattr(self, name):
                    found = f"found {show(value)} with topology {self.topology}, where workers take each step together"
                    yield (name,), f"{found}, allowed: {show(type(self).model_fields[name].default)}"

    @property
    def traffic(self) -> Traffic:
        """Messages that overlap with computation until the next ones are sent."""
        return replace(super().traffic, staleness=self.staleness, overlap="bounded")
