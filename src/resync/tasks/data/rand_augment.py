"""RandAugment with the operations and ranges of the library composer, which the QSR paper's ViTs are trained with."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

BILINEAR = InterpolationMode.BILINEAR


class Operation(NamedTuple):
    """`apply(image, argument)` for uint8 images [3, height, width], with `argument` = `draw(severity, side)`."""

    draw: Callable[[float, int], float]
    apply: Callable[[Tensor, float], Tensor]


@dataclass(frozen=True)
class RandAugment:
    """Applies `depth` operations to an image, each chosen uniformly from `OPERATIONS`, also twice the same.

    Cubuk et al. 2020, as composer draws it (Gu et al. 2024: depth 2 and severity 10, its set "all"): none of the
    operations is the identity, and every use has a strength of its own, uniform between 0.1 and `severity`, of which 10
    is the largest. torchvision's RandAugment has one strength, from 0 to 30, for all images, and smaller ranges. Random
    numbers come from torch's default generator.
    """

    depth: int
    severity: float

    def __call__(self, image: Tensor) -> Tensor:
        for choice in torch.randint(len(OPERATIONS), (self.depth,)).tolist():
            draw, apply = _CHOICES[choice]
            image = apply(image, draw(self.severity, image.shape[-1]))
        return image


def _uniform(low: float, high: float) -> float:
    return low + (high - low) * torch.rand(()).item()


def _strength(severity: float) -> float:
    return _uniform(0.1, severity)


def _sign() -> int:
    return 2 * int(torch.randint(2, ())) - 1


def _nothing(severity: float, side: int) -> float:
    return math.nan


def _slope(severity: float, side: int) -> float:
    return _sign() * 0.03 * _strength(severity)


def _pixels(severity: float, side: int) -> float:
    return _sign() * int(_strength(severity) / 10 * side / 3)


def _factor(severity: float, side: int) -> float:
    """1 leaves an image as it is; it is exceeded with probability 1/2."""
    return _uniform(1, severity) if _sign() > 0 else _uniform(1 - 0.09 * severity, 1)


def _brightness(severity: float, side: int) -> float:
    factor = _factor(severity, side)
    return 0.75 * factor if factor > 1 else factor


def _shear_x(image: Tensor, slope: float) -> Tensor:
    """Row y moves to the left by `slope` * y pixels."""
    shear = [math.degrees(math.atan(slope)), 0.0]
    return F.affine(image, 0.0, [0.0, 0.0], 1.0, shear, interpolation=BILINEAR, center=[0.0, 0.0])


def _shear_y(image: Tensor, slope: float) -> Tensor:
    """Column x moves up by `slope` * x pixels."""
    return _shear_x(image.mT, slope).mT


def _translate_x(image: Tensor, pixels: float) -> Tensor:
    """The image moves to the left by whole pixels."""
    return pad(image, [-int(pixels), int(pixels)])


def _translate_y(image: Tensor, pixels: float) -> Tensor:
    """The image moves up by whole pixels."""
    return _translate_x(image.mT, pixels).mT


OPERATIONS = {
    "autocontrast": Operation(_nothing, lambda image, _: F.autocontrast(image)),
    "equalize": Operation(_nothing, lambda image, _: F.equalize(image)),
    "posterize": Operation(
        lambda severity, _: 4 - int(0.4 * _strength(severity)), lambda image, bits: F.posterize(image, int(bits))
    ),
    "rotate": Operation(
        lambda severity, _: _sign() * int(3 * _strength(severity)),
        lambda image, degrees: F.rotate(image, degrees, interpolation=BILINEAR),
    ),
    "solarize": Operation(
        lambda severity, _: 256 - int(25.6 * _strength(severity)),
        lambda image, threshold: torch.where(image.short() >= threshold, 255 - image, image),
    ),
    "shear_x": Operation(_slope, _shear_x),
    "shear_y": Operation(_slope, _shear_y),
    "translate_x": Operation(_pixels, _translate_x),
    "translate_y": Operation(_pixels, _translate_y),
    "color": Operation(_factor, lambda image, factor: F.adjust_saturation(image, factor)),
    "contrast": Operation(_factor, lambda image, factor: F.adjust_contrast(image, factor)),
    "brightness": Operation(_brightness, lambda image, factor: F.adjust_brightness(image, factor)),
    "sharpness": Operation(_factor, lambda image, factor: F.adjust_sharpness(image, factor)),
}
_CHOICES = tuple(OPERATIONS.values())
