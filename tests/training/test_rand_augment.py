"""RandAugment against Pillow, which composer's operations are written with, and against the ranges of its strengths."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from resync.tasks.data.rand_augment import OPERATIONS, RandAugment

SIDE = 224


def transformed(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)


PILLOW = {
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "posterize": lambda image, bits: ImageOps.posterize(image, bits),
    "rotate": lambda image, degrees: image.rotate(degrees, resample=Image.Resampling.BILINEAR),
    "solarize": lambda image, threshold: ImageOps.solarize(image, threshold),
    "shear_x": lambda image, slope: transformed(image, (1, slope, 0, 0, 1, 0)),
    "shear_y": lambda image, slope: transformed(image, (1, 0, 0, slope, 1, 0)),
    "translate_x": lambda image, pixels: transformed(image, (1, 0, pixels, 0, 1, 0)),
    "translate_y": lambda image, pixels: transformed(image, (1, 0, 0, 0, 1, pixels)),
    "color": lambda image, factor: ImageEnhance.Color(image).enhance(factor),
    "contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "sharpness": lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor),
}
LARGEST_DIFFERENCE = {"autocontrast": 1, "contrast": 2} | dict.fromkeys(
    ("equalize", "posterize", "solarize", "translate_x", "translate_y", "brightness", "sharpness"), 0
)


def smooth_image() -> Image.Image:
    coarse = np.random.default_rng(0).integers(20, 220, size=(5, 5, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((64, 64), Image.Resampling.BICUBIC)


def tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def draws(name: str, severity: float = 10, number: int = 4000) -> np.ndarray:
    torch.manual_seed(0)
    return np.array([OPERATIONS[name].draw(severity, SIDE) for _ in range(number)])


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_those_of_pillow(name: str):
    image = smooth_image()
    torch.manual_seed(0)
    for _ in range(6):
        argument = OPERATIONS[name].draw(10, 64)
        ours = OPERATIONS[name].apply(tensor(image), argument)
        difference = (ours.short() - tensor(PILLOW[name](image, argument)).short()).abs()
        assert ours.dtype == torch.uint8
        if name in LARGEST_DIFFERENCE:
            assert difference.max() <= LARGEST_DIFFERENCE[name]
        else:  # Pillow rounds in between, and treats the last row of pixels at a border differently
            assert difference.float().quantile(0.95) <= (9 if name == "color" else 1)


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("rotate", -29, 29),
        ("shear_x", -0.3, 0.3),
        ("shear_y", -0.3, 0.3),
        ("translate_x", -74, 74),
        ("translate_y", -74, 74),
    ],
)
def test_signed_arguments_are_uniform_to_both_sides(name: str, lowest: float, highest: float):
    found = draws(name)
    assert lowest <= found.min() < 0.97 * lowest
    assert 0.97 * highest < found.max() <= highest
    assert np.mean(found > 0) == pytest.approx(np.mean(found < 0), abs=0.04)
    assert np.abs(found).mean() == pytest.approx(highest / 2, rel=0.04)


def test_bits_and_thresholds_are_drawn_for_every_use():
    bits, counts = np.unique(draws("posterize"), return_counts=True)
    assert bits.tolist() == [1, 2, 3, 4]
    assert counts == pytest.approx(1000, rel=0.1)
    thresholds = draws("solarize")
    assert (thresholds.min(), thresholds.max()) == (1, 254)
    assert thresholds.mean() == pytest.approx(256 / 2, rel=0.04)


@pytest.mark.parametrize(("name", "largest"), [("color", 10), ("contrast", 10), ("sharpness", 10), ("brightness", 7.5)])
def test_factors_exceed_one_half_of_the_time(name: str, largest: float):
    found = draws(name)
    share = largest / 10
    assert 0.1 <= found.min() < 0.12
    assert 0.98 * largest < found.max() <= largest
    rises = found[found > 1]
    # A brightness of more than 1 is drawn from 1 to 10 and reduced by a quarter, so that a part of it falls below 1.
    assert len(rises) / len(found) == pytest.approx(0.5 * (largest - 1) / (9 * share), abs=0.03)
    assert rises.mean() == pytest.approx((1 + largest) / 2, rel=0.04)


def test_severity_bounds_every_argument():
    """At severity 1 the ranges of signed arguments are a tenth, and no operation changes much."""
    assert np.abs(draws("rotate", 1)).max() == 2
    assert np.abs(draws("shear_x", 1)).max() == pytest.approx(0.03, rel=0.01)
    assert np.abs(draws("translate_x", 1)).max() == 7
    assert draws("posterize", 1).min() == 4
    assert draws("solarize", 1).min() == 256 - 25
    assert draws("color", 1).min() == pytest.approx(0.91, abs=0.01)
    assert draws("color", 1).max() == 1


def test_depth_operations_are_chosen_uniformly_and_repeatedly(monkeypatch: pytest.MonkeyPatch):
    applied: list[str] = []

    def noted(name: str):
        return OPERATIONS[name]._replace(apply=lambda image, _: (applied.append(name), image)[1])

    monkeypatch.setattr("resync.tasks.data.rand_augment._CHOICES", tuple(noted(name) for name in OPERATIONS))
    augment = RandAugment(depth=3, severity=10)
    torch.manual_seed(0)
    image = tensor(smooth_image())
    for _ in range(1300):
        augment(image)
    assert len(applied) == 3 * 1300
    counts = [applied.count(name) for name in OPERATIONS]
    assert counts == pytest.approx(13 * [300], rel=0.2)
    repeated = sum(len({*applied[at : at + 3]}) < 3 for at in range(0, len(applied), 3)) / 1300
    assert repeated == pytest.approx(1 - (12 / 13) * (11 / 13), abs=0.04)
