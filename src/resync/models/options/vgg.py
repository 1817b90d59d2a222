"""Options of VGG for CIFAR."""

from typing import Literal

from pydantic import Field

from resync.config.parts import ModelOptions


class VGG(ModelOptions):
    """VGG for images of at least 32 pixels, without normalisation, with SiLU, average pooling and one linear layer.

    Includes the Local SGD paper's VGG-16.
    """

    batch_norm = False
    form = "channels"
    name: Literal["vgg"] = Field(default="vgg", init=False)
    depth: Literal[11, 13, 16, 19] = Field(
        description="number of layers, as in the model names of Simonyan and Zisserman 2015"
    )
