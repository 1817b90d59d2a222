"""The options of every optimizer, without torch. See `resync.base.settings.options`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from resync.base.settings.base import Check, NonNegativeNumber, PositiveNumber, wrong
from resync.workers.optim.options.base import OptimizerOptions


class DecayOptions(OptimizerOptions):
    """The options of an optimizer whose weight decay may exclude biases and normalisation layers."""

    weight_decay: NonNegativeNumber = Field(
        default=0.0, description="weight decay: an L2 penalty for sgd, decoupled for adamw"
    )
    decay: Literal["all", "matrices", "matrices_and_embeddings"] = Field(
        default="all",
        description="parameters that decay: all, the weights of linear and convolutional layers, or these and "
        "embeddings (nanoGPT)",
    )

    def checks(self) -> Iterator[Check]:
        if self.decay != "all" and not self.weight_decay:
            yield wrong("decay", f"{self.decay} without weight_decay", "with weight_decay > 0")

    @property
    def decaying(self) -> str:
        return self.decay

    @property
    def decay_of_all(self) -> float:
        return self.weight_decay if self.decay == "all" else 0.0

    @property
    def decay_of_matrices(self) -> float:
        return self.weight_decay - self.decay_of_all


class SGD(DecayOptions):
    """Stochastic gradient descent with heavy-ball or Nesterov momentum and L2 weight decay (torch.optim.SGD)."""

    name: Literal["sgd"] = Field(default="sgd", init=False)
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.0, description="momentum factor")
    nesterov: bool = Field(default=False, description="Nesterov's form; needs momentum > 0")

    def checks(self) -> Iterator[Check]:
        yield from super().checks()
        if self.nesterov and not self.momentum:
            yield wrong("nesterov", "true without momentum", "with momentum > 0")

    @property
    def state_vectors(self) -> int:
        return int(self.momentum > 0)


class AdamW(DecayOptions):
    """Adam with decoupled weight decay (torch.optim.AdamW)."""

    state_vectors: ClassVar[int] = 2
    name: Literal["adamw"] = Field(default="adamw", init=False)
    beta1: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.9, description="decay rate of the first moment")
    beta2: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.999, description="decay rate of the second moment")
    eps: PositiveNumber = Field(default=1e-8, description="number added to the square root of the second moment")
    fused: Literal[False] | None = Field(
        default=None,
        description="false: torch's loop of single operations, with the rounding of programs that use it; null: its "
        "fused kernel, which is faster",
    )


Factor = Annotated[float, Field(ge=0, lt=1)]


class Muon(DecayOptions):
    """Orthogonalised momentum for the matrices of hidden layers, AdamW for all other parameters (Jordan et al. 2024).

    Other parameters are embeddings, the output layer, convolutions, biases and normalisation. Constants and momentum
    are those of MuLoCo's code.
    """

    by_shape: ClassVar[bool] = True
    state_vectors: ClassVar[int] = 2
    name: Literal["muon"] = Field(default="muon", init=False)
    momentum: Factor = Field(default=0.95, description="momentum of the matrices")
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="number format of the Newton-Schulz iteration; the originals use bfloat16, which is faster on GPUs "
        "and differs by about 1 %",
    )
    beta1: Factor = Field(default=0.9, description="decay rate of AdamW's first moment")
    beta2: Factor = Field(default=0.95, description="decay rate of AdamW's second moment")
    others_lr: PositiveNumber = Field(
        default=1.0, description="learning rate of AdamW, in units of that of the schedule, which the matrices have"
    )
