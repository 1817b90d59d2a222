"""What the options of optimizers with weight decay share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from resync.config.parts import OptimizerOptions
from resync.settings.base import Check, NonNegativeNumber


class DecayOptions(OptimizerOptions):
    """The options of an optimizer whose decay may leave out biases and normalisation."""

    weight_decay: NonNegativeNumber = Field(
        default=0.0, description="decay of the parameters: an L2 penalty for sgd, decoupled for adamw"
    )
    decay: Literal["all", "matrices"] = Field(
        default="all", description="parameters that decay: all, or the weights of linear and convolutional layers"
    )

    def checks(self) -> Iterator[Check]:
        """What decays does so at a rate."""
        if self.decay == "matrices" and not self.weight_decay:
            yield ("decay",), "found matrices without weight_decay, allowed: with weight_decay > 0"

    @property
    def decay_of_all(self) -> float:
        """The decay that torch's optimizer applies to all parameters."""
        return self.weight_decay if self.decay == "all" else 0.0

    @property
    def decay_of_matrices(self) -> float:
        """The decay of the weights of linear and convolutional layers alone."""
        return self.weight_decay - self.decay_of_all
