"""Transforms of images of any size for training and validation: a square crop at the model's resolution."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision.transforms.v2 import functional as F

Transform = Callable[[Tensor], Tensor]
"""From uint8 [3, height, width] to uint8 [3, side, side]; random numbers come from torch's default generator."""

RATIO = 224 / 256
"""Ratio of the side of the validation crop to the shorter side of the image."""

AREAS, ASPECT_RATIOS, ATTEMPTS = (0.08, 1.0), (3 / 4, 4 / 3), 10
"""Ranges of a random crop: its share of the area, its width / height; and draws of both until one fits."""


@dataclass(frozen=True)
class TrainingTransform:
    """A random resized crop, flipped horizontally with probability 1/2 (Szegedy et al. 2015), and `then` if given.

    The crop has 8 to 100 % of the area and an aspect ratio of 3/4 to 4/3. Bit by bit, with the same draws, these are
    torchvision's `RandomResizedCrop` and `RandomHorizontalFlip`, whose overhead is a third of their processor time.
    """

    side: int
    then: Transform | None = None

    def __call__(self, image: Tensor) -> Tensor:
        top, left, height, width = _random_crop(*image.shape[1:])
        crop = image[None, :, top : top + height, left : left + width]
        [resized] = interpolate(crop, [self.side, self.side], mode="bilinear", antialias=True)
        flipped = resized.flip(-1) if torch.rand(()).item() < 0.5 else resized
        return self.then(flipped) if self.then else flipped


def validation_transform(side: int) -> Transform:
    """A centred square crop with 224/256 of the image's shorter side (Gu et al. 2024, trainer)."""

    def transform(image: Tensor) -> Tensor:
        cropped = F.center_crop(image, [round(RATIO * min(image.shape[1:]))])
        return F.resize(cropped, [side, side], antialias=True)

    return transform


def _random_crop(height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width of a crop; a centred one of an allowed aspect ratio where no draw fits."""
    lowest, highest = ASPECT_RATIOS
    for _ in range(ATTEMPTS):
        area = height * width * torch.empty(()).uniform_(*AREAS).item()
        ratio = torch.empty(()).uniform_(math.log(lowest), math.log(highest)).exp_().item()
        rows, columns = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < rows <= height and 0 < columns <= width:
            top, left = (int(torch.randint(room + 1, ())) for room in (height - rows, width - columns))
            return top, left, rows, columns
    rows, columns = min(height, round(width / lowest)), min(width, round(height * highest))
    return (height - rows) // 2, (width - columns) // 2, rows, columns
