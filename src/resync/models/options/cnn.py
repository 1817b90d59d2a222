"""Options of the small convolutional net."""

from typing import Literal

from pydantic import Field

from resync.config.parts import ModelOptions
from resync.settings.base import PositiveInt, Several


class CNN(ModelOptions):
    """Small convolutional net, 3x3 convolutions with normalisation and ReLU, global average pooling."""

    name: Literal["cnn"] = Field(default="cnn", init=False)
    widths: Several[PositiveInt] = Field(
        default=(8, 16),
        min_length=1,
        description="channels of every convolution; from the second on the stride is 2",
    )
    norm: Literal["group", "batch", "none"] = Field(
        default="group", description="normalisation after every convolution; batch needs evaluation.bn_batches"
    )
    groups: PositiveInt = Field(default=4, description="groups of the GroupNorm; divides every width")

    @property
    def has_batch_norm(self) -> bool:
        """By the option `norm`."""
        return self.norm == "batch"
