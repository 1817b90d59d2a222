"""Options of ResNets for CIFAR."""

from typing import Literal

from pydantic import Field

from resync.config.parts import ModelOptions
from resync.settings.base import PositiveInt


class CifarResNet(ModelOptions):
    """ResNet for 32-pixel images, with 6n+2 layers and parameter-free shortcuts.

    Option A of He et al. 2016; includes the Local SGD paper's ResNet-56.
    """

    form = "channels"
    name: Literal["cifar_resnet"] = Field(default="cifar_resnet", init=False)
    depth: Literal[8, 14, 20, 32, 44, 56, 110, 1202] = Field(description="number of layers")
    width: PositiveInt = Field(
        default=16, description="channels of the first stage; they double in the second and in the third"
    )
    norm: Literal["batch", "group"] = Field(
        default="batch", description="normalisation after every convolution; batch needs evaluation.bn_batches"
    )
    groups: PositiveInt = Field(default=8, description="groups of the GroupNorm; divides the width")
    activation: Literal["relu", "silu"] = Field(
        default="relu", description="activation; the Local SGD paper's networks with GroupNorm use silu"
    )

    @property
    def has_batch_norm(self) -> bool:
        return self.norm == "batch"
