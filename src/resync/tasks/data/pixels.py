"""Conversion of stored 8-bit images to inputs of a model, a whole batch at once on its device."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Pixels:
    """Normalisation of every channel, and random crops and flips for training.

    `mean` and `std` are [C, 1, 1] in units of stored pixels (0 to 255). `crops` [draws, H * W] lists every possible
    crop and flip as the place in a flattened image from which each pixel comes; H * W stands for the black border.
    """

    mean: Tensor
    std: Tensor
    crops: Tensor | None

    @classmethod
    def of(cls, mean: Sequence[float], std: Sequence[float], shape: Sequence[int], padding: int | None) -> "Pixels":
        """Normalisation by the mean and deviation of pixels from 0 to 1; `padding` augments images of `shape`.

        The augmentation is the usual one for CIFAR: `padding` black pixels on every side, a random crop of the
        original size, and a horizontal flip with probability 1/2 (Gu et al. 2023).
        """
        crops = None if padding is None else _crops(shape[1], shape[2], padding)
        return cls(_per_channel(mean), _per_channel(std), crops)

    def to(self, device: torch.device) -> "Pixels":
        crops = self.crops.to(device) if self.crops is not None else None
        return Pixels(self.mean.to(device), self.std.to(device), crops)

    @property
    def num_draws(self) -> int:
        """Number of ways to crop and flip a training image, all equally likely."""
        return 1 if self.crops is None else len(self.crops)

    def normalise(self, images: Tensor) -> Tensor:
        """float32 inputs for uint8 images, both [N, C, H, W]."""
        return images.float().sub_(self.mean).div_(self.std)

    def augment(self, images: Tensor, draws: Tensor) -> Tensor:
        """Inputs for training: each image cropped and flipped according to `draws` [N], then normalised."""
        if self.crops is None:
            return self.normalise(images)
        with_black = F.pad(images.flatten(2), (0, 1))
        places = self.crops.index_select(0, draws)[:, None].expand(-1, images.shape[1], -1)
        return self.normalise(with_black.gather(2, places).view(images.shape))


def _per_channel(values: Sequence[float]) -> Tensor:
    return 255 * torch.tensor(values).view(-1, 1, 1)


def _crops(height: int, width: int, padding: int) -> Tensor:
    """Every window of the padded image, followed by all of their mirror images."""
    places = torch.arange(height * width).view(height, width)
    windows = F.pad(places, 4 * (padding,), value=height * width).unfold(0, height, 1).unfold(1, width, 1)
    return torch.stack([windows, windows.flip(-1)]).view(-1, height * width)
