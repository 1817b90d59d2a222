"""Options of the guide's network for MNIST: none."""

from typing import Literal

from pydantic import Field

from resync.config.parts import ModelOptions


class MnistCNN(ModelOptions):
    """Four 3x3 convolutions with BatchNorm and one hidden linear layer.

    The network of the DDP training tricks guide for MNIST.
    """

    batch_norm = True
    form = "channels"
    name: Literal["mnist_cnn"] = Field(default="mnist_cnn", init=False)
