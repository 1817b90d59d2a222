"""The common options of optimizers with weight decay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from resync.config.parts import OptimizerOptions
from resync.settings.base import Check, NonNegativeNumber


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
        """Refuse a choice of parameters without weight decay."""
        if self.decay != "all" and not self.weight_decay:
            yield ("decay",), f"found {self.decay} without weight_decay, allowed: with weight_decay > 0"

    @property
    def decaying(self) -> str:
        """The parameters that decay."""
        return self.decay

    @property
    def decay_of_all(self) -> float:
        """Weight decay that torch's optimizer applies to all parameters."""
        return self.weight_decay if self.decay == "all" else 0.0

    @property
    def decay_of_matrices(self) -> float:
        """Weight decay that applies only to the parameters that `decay` names."""
        return self.weight_decay - self.decay_of_all
