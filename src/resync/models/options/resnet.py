"""Options of torchvision's ResNets."""

from typing import Literal

from pydantic import Field

from resync.config.parts import ModelOptions
from resync.settings.base import PositiveNumber


class ResNet(ModelOptions):
    """ResNet of torchvision with its default initialisation.

    He et al. 2016, in the variant with the stride in the 3x3 convolution.
    """

    batch_norm = True
    form = "channels"
    name: Literal["resnet"] = Field(default="resnet", init=False)
    depth: Literal[18, 34, 50, 101, 152] = Field(description="number of layers")
    stem: Literal["imagenet", "cifar"] = Field(
        default="imagenet",
        description="first layer: imagenet is a 7x7 convolution and a pooling that reduce the side by a factor of 4, "
        "cifar a 3x3 convolution that keeps the resolution of 32-pixel images",
    )
    zero_last_gamma: bool = Field(
        default=False,
        description="start the last BatchNorm scale of every residual block at zero (Goyal et al. 2017; SGP's setting)",
    )
    fc_std: PositiveNumber | None = Field(
        default=None,
        description="standard deviation of the last layer's initial weights (0.01 in Goyal et al. 2017 and SGP); "
        "null: torchvision's uniform initialisation",
    )
