"""Options of synchronous data-parallel training."""

from typing import Literal

from pydantic import Field

from resync.config.parts import SyncOptions, Traffic


class AllReduce(SyncOptions):
    """Synchronous data-parallel training, gradients averaged over all workers in every step."""

    can_be_base = True
    label = "AR-SGD"
    name: Literal["allreduce"] = Field(default="allreduce", init=False)
    engine: Literal["torch", "deepspeed"] = Field(
        default="torch",
        description="torch overlaps the average with the backward pass where every process hosts one worker; "
        "deepspeed needs one worker a process and precision fp32 or tf32",
    )
    zero_stage: Literal[0, 1, 2] = Field(
        default=0,
        description="ZeRO of the engine deepspeed: 1 shards the optimizer state over the processes, "
        "2 the gradients too",
    )

    @property
    def traffic(self) -> Traffic:
        """The gradient is averaged after every step."""
        return Traffic()
