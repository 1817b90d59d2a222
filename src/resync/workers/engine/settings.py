"""Settings of engines, which need no torch."""

from typing import Literal

from pydantic import Field

from resync.base.settings.base import PositiveInt, PositiveNumber, Settings

Form = Literal["channels", "samples"]
"""How the samples of several workers pass through a model at once, see `resync.workers.engine.stacked_layers`."""


class EngineSettings(Settings):
    """The engine, which computes gradients and takes optimizer steps. Engines differ in rounding only."""

    name: Literal["auto", "serial", "stacked", "ddp", "deepspeed"] = Field(
        default="auto",
        description="serial: the workers of a process one after the other, gradients averaged after the backward pass, "
        "so that the time of communication is measured; stacked: the same, but each layer for all workers of the "
        "process at once, which is faster for small layers, and not for every model; ddp: torch's "
        "DistributedDataParallel, which averages gradients during the backward pass, with one or more processes per "
        "worker; "
        "deepspeed: DeepSpeed's engine, for allreduce with one worker per process; auto: ddp where it can overlap, "
        "stacked where it was measured to be faster, else serial",
    )
    zero_stage: Literal[0, 1, 2] = Field(
        default=0,
        description="ZeRO stage of the engine deepspeed: 1 shards the optimizer state over the processes, 2 the "
        "gradients too",
    )


class LossScale(Settings):
    """The factor of the loss in fp16, one for each worker: it keeps small gradients from becoming zero."""

    initial: PositiveNumber = Field(default=65536.0, description="the first scale")
    growth: float = Field(default=2.0, gt=1, description="factor after `interval` steps without overflow")
    backoff: float = Field(default=0.5, gt=0, lt=1, description="factor at an overflow; the gradient is computed again")
    interval: PositiveInt = Field(
        default=100, description="steps in a row without overflow after which the scale grows"
    )
    retries: PositiveInt = Field(
        default=50,
        description="how often a gradient that overflows is computed again before the run counts as diverged",
    )
