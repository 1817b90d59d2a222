"""Options of synchronous data-parallel training."""

from typing import Literal

from pydantic import Field

from resync.config.parts import SyncOptions, Traffic


class AllReduce(SyncOptions):
    """Synchronous data-parallel training, gradients averaged over all workers in every step."""

    can_be_base = True
    label = "AR-SGD"
    name: Literal["allreduce"] = Field(default="allreduce", init=False)

    @property
    def averages_gradients(self) -> bool:
        return True

    @property
    def traffic(self) -> Traffic:
        """An average of the gradients over all workers in every step."""
        return Traffic()
