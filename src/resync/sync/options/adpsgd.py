"""Options of asynchronous decentralised parallel SGD."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from resync.config.parts import SyncOptions, Traffic
from resync.settings.base import Check

PairTopology = Annotated[
    Literal["bipartite_exponential", "bipartite_linear"],
    Field(description="graph of the pairs; odd workers are active (ask), even ones passive (answer)"),
]


class ADPSGD(SyncOptions):
    """Asynchronous decentralised parallel SGD, pairs of workers average while others compute (Lian et al. 2018)."""

    label = "AD-PSGD"
    name: Literal["adpsgd"] = Field(default="adpsgd", init=False)
    topology: PairTopology = "bipartite_exponential"
    asynchronous: bool = Field(
        default=False,
        description="true: asynchronous in real time, with an averaging thread in each process of one worker; "
        "false: simulated, with one step per unit of time",
    )
    compute_times: Literal["constant", "random", "straggler"] = Field(
        default="constant",
        description="simulated time of a gradient: constant, 1 unit, so that all end together, as in D-PSGD; random, "
        "uniform in [1, 2]; straggler, slowdown units for worker 0 and 1 unit for the others",
    )
    slowdown: Annotated[float, Field(ge=1)] = Field(
        default=5.0, description="simulated time of a gradient of the straggler, in units"
    )

    def checks(self) -> Iterator[Check]:
        """Refuse simulated times without simulation."""
        for name in ("compute_times", "slowdown"):
            value, default = getattr(self, name), type(self).model_fields[name].default
            if self.asynchronous and value != default:
                yield (name,), f"found {value} with asynchronous, allowed: without it, or the default {default}"

    @property
    def steps_apart(self) -> bool:
        """Whether time is simulated, so that a process hosts workers of different speeds."""
        return not self.asynchronous

    @property
    def whole_workers(self) -> bool:
        """Whether a thread of a process averages: the GPUs of a worker would have to wait for it together."""
        return self.asynchronous

    @property
    def traffic(self) -> Traffic:
        """A pairwise average per step, for which no worker waits."""
        return Traffic(topology=self.topology, overlap="full")
