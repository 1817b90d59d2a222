"""Options of asynchronous decentralised parallel SGD."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from resync.config.parts import SyncOptions, Traffic
from resync.settings.base import Check

PairTopology = Annotated[
    Literal["bipartite_exponential", "bipartite_linear"],
    Field(description="who averages with whom; odd workers ask, even ones answer"),
]


class ADPSGD(SyncOptions):
    """Asynchronous decentralised parallel SGD, pairs average while others compute (Lian et al. 2018)."""

    label = "AD-PSGD"
    name: Literal["adpsgd"] = Field(default="adpsgd", init=False)
    topology: PairTopology = "bipartite_exponential"
    asynchronous: bool = Field(
        default=False,
        description="really asynchronous, with a thread in each process of one worker; "
        "else simulated, one step a unit of time",
    )
    compute_times: Literal["constant", "random", "straggler"] = Field(
        default="constant",
        description="simulated time of a gradient: 1 unit; uniform in [1, 2]; slowdown units for worker 0",
    )
    slowdown: Annotated[float, Field(ge=1)] = Field(
        default=5.0, description="units of time of the straggler's gradient"
    )

    def checks(self) -> Iterator[Check]:
        """Real asynchrony has real times."""
        for name in ("compute_times", "slowdown"):
            value, default = getattr(self, name), type(self).model_fields[name].default
            if self.asynchronous and value != default:
                yield (name,), f"found {value} with asynchronous, allowed: without it, or the default {default}"

    @property
    def steps_apart(self) -> bool:
        """In simulated time, where a process hosts workers of different speeds."""
        return not self.asynchronous

    @property
    def traffic(self) -> Traffic:
        """The average of a pair for every step; nobody waits for it."""
        return Traffic(topology=self.topology, overlap="full")
