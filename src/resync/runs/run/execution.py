"""How a run is executed: processes, engine, checkpoints, log, device. None of it is in a run's hash."""

from typing import Literal

from pydantic import Field

from resync.base.settings.base import Items, NonNegativeNumber, PositiveInt, PositiveNumber, Settings
from resync.workers.engine.settings import EngineSettings


class Checkpoint(Settings):
    """Checkpoints, from which an interrupted run continues: whenever one of the four intervals has passed.

    At the end of the training there is always one. Asynchronous AD-PSGD saves one after every evaluation instead.
    """

    every_rounds: PositiveInt | None = Field(default=None, description="rounds between two checkpoints")
    every_steps: PositiveInt | None = Field(default=None, description="steps between two, also within a round")
    every_epochs: PositiveInt | None = Field(default=None, description="epochs between two, also within a round")
    every_minutes: PositiveNumber | None = Field(
        default=20.0,
        description="minutes between two, also within a round, on the clock of rank 0, looked at every log.every_steps",
    )
    keep: PositiveInt = Field(default=2, description="number of newest checkpoints to keep")
    keep_epochs: Items[NonNegativeNumber] = Field(
        default=(),
        description="epochs after which a checkpoint is written and kept for good, with the averaged model, such as "
        "[0, 150]; other runs can start from it (start_from: ...@step<n>)",
    )


class Log(Settings):
    """Logging during training."""

    every_steps: PositiveInt = Field(default=10, description="steps between two rows of steps.csv")
    wandb: Literal["offline", "online", "disabled"] = Field(
        default="offline",
        description="Weights & Biases mode; the environment variables WANDB_PROJECT, WANDB_ENTITY and WANDB_TAGS say "
        "where runs appear",
    )


class Execution(Settings):
    """How a run is executed. This affects rounding at most, so it is not in the run's hash and may change at any time.

    The device and the number of threads are here too: they affect the last bits, but no result that anybody would
    report; the summary of a run records them.
    """

    processes: PositiveInt = Field(
        default=1,
        description="number of processes W that host workers: a divisor of workers, or workers times a divisor of "
        "gpus_per_worker",
    )
    engine: EngineSettings = Field(
        default=EngineSettings(), description="engine that computes gradients and takes optimizer steps"
    )
    checkpoint: Checkpoint = Field(default=Checkpoint(), description="checkpoints")
    log: Log = Field(default=Log(), description="logging")
    memory_format: Literal["channels_last"] | None = Field(
        default=None, description="memory layout of images inside the model; null: channels first"
    )
    compile: Literal["default", "reduce-overhead", "max-autotune"] | None = Field(
        default=None, description="mode of torch.compile for forward and backward passes; null: not compiled"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: cuda if available, else cpu")
    threads: PositiveInt = Field(default=1, description="CPU threads per process")
