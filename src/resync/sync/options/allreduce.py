"""Options of synchronous data-parallel training."""

from typing import Literal

from pydantic import Field

from resync.config.parts import SyncOptions, Traffic


class AllReduce(SyncOptions):
    """Synchronous data-parallel training, gradients or parameters averaged over all workers in every step."""

    can_be_base = True
    label = "AR-SGD"
    name: Literal["allreduce"] = Field(default="allreduce", init=False)
    average: Literal["gradients", "parameters"] = Field(
        default="gradients",
        description="gradients: before the optimizer step; parameters: after the step of every worker's own optimizer, "
        "like the baselines of the SGP paper",
    )
    all_reduce: Literal["default", "ring", "recursive_doubling"] = Field(
        default="default",
        description="default: that of the communication library; ring, recursive_doubling: made of messages between "
        "two processes, each of which sends 2 (W - 1) messages of 1/W of a vector, or log2 W whole vectors",
    )

    @property
    def averages_gradients(self) -> bool:
        return self.average == "gradients"

    @property
    def engine_may_average(self) -> bool:
        """Whether the average is one that an engine takes: of gradients, by the default all-reduce."""
        return self.averages_gradients and self.all_reduce == "default"

    @property
    def traffic(self) -> Traffic:
        """An average over all workers in every step."""
        return Traffic(all_reduce=self.all_reduce)
