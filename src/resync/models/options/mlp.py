"""Options of the multi-layer perceptron."""

from typing import Literal

from pydantic import Field

from resync.config.parts import ModelOptions
from resync.settings.base import PositiveInt, Several


class MLP(ModelOptions):
    """Multi-layer perceptron on the flattened input."""

    batch_norm = False
    form = "samples"
    name: Literal["mlp"] = Field(default="mlp", init=False)
    hidden: Several[PositiveInt] = Field(default=(64,), min_length=1, description="width of every hidden layer")
    activation: Literal["relu", "silu"] = Field(
        default="relu", description="activation after every hidden layer; silu is smooth"
    )
