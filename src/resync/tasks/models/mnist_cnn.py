"""The convolutional network of the guide "Pytorch-DistributedDataParallel-Training-Tricks" for MNIST."""

from torch import nn

from resync.base.errors import UserError
from resync.tasks.models.options import MnistCNN


def build(input_shape: tuple[int, ...], num_classes: int, options: MnistCNN) -> nn.Module:
    """Logits [batch, num_classes] for images [batch, channels, height, width]."""
    channels, height, width = input_shape
    if min(height, width) < 16:
        raise UserError(f"model mnist_cnn: needs images of at least 16x16 pixels, found {height}x{width}")
    return nn.Sequential(
        *_convolution(channels, 64),
        *_convolution(64, 128),
        nn.MaxPool2d(2),
        *_convolution(128, 256),
        *_convolution(256, 512),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512 * _pooled(height) * _pooled(width), 512),
        nn.BatchNorm1d(512),
        nn.ReLU(),
        nn.Linear(512, num_classes),
    )


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    # The bias has no effect before a BatchNorm, but the guide's network has it, and it is communicated too.
    return [nn.Conv2d(inputs, outputs, 3), nn.BatchNorm2d(outputs), nn.ReLU()]


def _pooled(side: int) -> int:
    """The side of an image of `side` pixels after two blocks of two unpadded 3x3 convolutions and a pooling by 2."""
    return ((side - 4) // 2 - 4) // 2
