"""Transforms of images of any size for training and validation: a square crop at the model's resolution."""

from collections.abc import Callable

from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

Transform = Callable[[Tensor], Tensor]
"""From uint8 [3, height, width] to uint8 [3, side, side]; random numbers come from torch's default generator."""

RATIO = 224 / 256
"""Ratio of the side of the validation crop to the shorter side of the image."""


def training_transform(side: int, then: Transform | None = None) -> Transform:
    """A random resized crop, flipped horizontally with probability 1/2 (Szegedy et al. 2015), and `then` if given.

    The crop has 8 to 100 % of the area and an aspect ratio of 3/4 to 4/3.
    """
    steps: list[Transform] = [v2.RandomResizedCrop(side, antialias=True), v2.RandomHorizontalFlip()]
    return v2.Compose([*steps, then] if then else steps)


def validation_transform(side: int) -> Transform:
    """A centred square crop with 224/256 of the image's shorter side (Gu et al. 2024, trainer)."""

    def transform(image: Tensor) -> Tensor:
        cropped = F.center_crop(image, [round(RATIO * min(image.shape[1:]))])
        return F.resize(cropped, [side, side], antialias=True)

    return transform
