"""Crops and flips of a whole batch: what each image becomes, how likely each is, and that nothing else decides it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from runs import CNN_WITH_BATCH_NORM, assert_runs_agree, make_session, trained_until
from torch.nn import functional as F

from resync.runs.train.saving import resume
from resync.tasks import data
from resync.tasks.data.memory import InMemory
from resync.tasks.data.pixels import Pixels
from resync.tasks.data.sampling import Sampler

MEAN, STD = (0.5, 0.25), (0.2, 0.1)


def plain(image: torch.Tensor, padding: int, draw: int) -> torch.Tensor:
    """One image [C, H, W] by slices: pad with black, crop, flip."""
    _, height, width = image.shape
    flipped, place = divmod(draw, (2 * padding + 1) ** 2)
    top, left = divmod(place, 2 * padding + 1)
    crop = F.pad(image, 4 * (padding,))[:, top : top + height, left : left + width]
    return crop.flip(2) if flipped else crop


def test_every_crop_and_flip_equals_the_plain_form():
    images = torch.randint(256, (50, 2, 7, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    pixels = Pixels.of(MEAN, STD, (2, 7, 5), padding=2)
    assert pixels.num_draws == 2 * 5 * 5
    draws = torch.arange(50)
    cropped = torch.stack([plain(image, 2, draw) for image, draw in zip(images, draws.tolist(), strict=True)])
    mean, std = (torch.tensor(values).view(2, 1, 1) for values in (MEAN, STD))
    expected = (cropped.float() / 255 - mean) / std
    torch.testing.assert_close(pixels.augment(images, draws), expected)
    torch.testing.assert_close(pixels.normalise(images), (images.float() / 255 - mean) / std)
    assert torch.equal(Pixels.of(MEAN, STD, (2, 7, 5), None).augment(images, draws), pixels.normalise(images))


def small(**changes: Any) -> InMemory:
    """400 images that all show the numbers from 1 to 16, so that an input tells how it was cropped and flipped."""
    images = torch.arange(1, 17, dtype=torch.uint8).view(1, 1, 4, 4).repeat(400, 1, 1, 1)
    pixels = Pixels.of([0.0], [1 / 255], (1, 4, 4), padding=1)
    targets = torch.arange(400) % 10
    return InMemory(
        images, targets, images[:40], targets[:40], **{"variant": "small", "sha256": "0", **changes}, pixels=pixels
    )


def sampler(seed: int = 7) -> Sampler:
    return Sampler(num_samples=400, num_workers=4, local_batch=10, steps=9, seed=seed, replacement=False)


def inputs(epoch: int = 0, first_step: int = 0, workers: slice = slice(0, 4), seed: int = 7) -> torch.Tensor:
    """The inputs of an epoch, [steps, k, b, C, H, W]."""
    return torch.stack([batch for batch, _ in small().batches(sampler(seed), epoch, first_step, workers)])


def test_every_crop_occurs_and_half_of_the_images_are_flipped():
    found = torch.cat([inputs(epoch).flatten(0, 2) for epoch in range(4)])
    kinds, counts = found.unique(dim=0, return_counts=True)
    assert len(kinds) == 18
    assert counts.min() > 0.5 * counts.float().mean()
    # In every crop a number is one less than the one to its right, unless the image is flipped.
    flipped = (found[:, 0, 1, 1] > found[:, 0, 1, 2]).float().mean()
    assert 0.46 < flipped < 0.54


def test_pixels_depend_on_seed_worker_and_epoch_alone():
    whole = inputs()
    assert torch.equal(whole, inputs())
    assert torch.equal(whole[:, 2:], inputs(workers=slice(2, 4)))
    assert torch.equal(whole[5:], inputs(first_step=5))
    assert not torch.equal(whole[:, 0], whole[:, 1])
    assert not torch.equal(whole, inputs(epoch=1))
    assert not torch.equal(whole, inputs(seed=8))


def test_statistics_are_estimated_on_augmented_images_and_validation_is_on_whole_ones():
    dataset = small()
    batch, _ = dataset.statistics_batch(7, epoch=3, index=1, batch_size=64)
    assert torch.equal(batch, dataset.statistics_batch(7, epoch=3, index=1, batch_size=64)[0])
    assert not torch.equal(batch, dataset.statistics_batch(7, epoch=3, index=2, batch_size=64)[0])
    assert len(batch.unique(dim=0)) > 10
    [(whole, _)] = dataset.validation(0, 1)
    assert torch.equal(whole, dataset.val_inputs.float())


@pytest.fixture
def augmented(monkeypatch: pytest.MonkeyPatch) -> InMemory:
    """Runs read digits as 8-bit images, augmented."""
    digits = data.build("digits", {})

    def stored(values: torch.Tensor) -> torch.Tensor:
        return (255 * (values - values.min()) / (values.max() - values.min())).byte()

    parts = stored(digits.train_inputs), digits.train_targets, stored(digits.val_inputs), digits.val_targets
    images = InMemory(*parts, "digits", "0", Pixels.of([0.3], [0.4], (1, 8, 8), padding=1))
    monkeypatch.setattr(data, "build", lambda *_: images)
    return images


def test_runs_on_augmented_images_agree_over_processes_and_after_an_interruption(augmented: InMemory, tmp_path: Path):
    assert_runs_agree(tmp_path, CNN_WITH_BATCH_NORM, stop=5)


def test_a_checkpoint_of_other_data_is_not_taken(augmented: InMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trained_until(0, 1, tmp_path, {}, 3)
    other = InMemory(**vars(augmented) | {"sha256": "1"})
    monkeypatch.setattr(data, "build", lambda *_: other)
    session = make_session(tmp_path)
    resume(session)
    assert session.resumed_from == []
    assert not list((tmp_path / "checkpoint").iterdir())
