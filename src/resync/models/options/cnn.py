"""Options of the small convolutional network."""

from typing import Literal

from pydantic import Field

from resync.config.parts import ModelOptions
from resync.settings.base import PositiveInt, Several


class CNN(ModelOptions):
    """Small convolutional network of 3x3 convolutions with normalisation and ReLU, and global average pooling."""

    form = "channels"
    name: Literal["cnn"] = Field(default="cnn", init=False)
    widths: Several[PositiveInt] = Field(
        default=(8, 16),
        min_length=1,
        description="channels of every convolution; the stride is 2 from the second one on",
    )
    norm: Literal["group", "batch", "none"] = Field(
        default="group", description="normalisation after every convolution; batch needs evaluation.bn_batches"
    )
    groups: PositiveInt = Field(default=4, description="groups of the GroupNorm; divides every width")

    @property
    def has_batch_norm(self) -> bool:
        return self.norm == "batch"
