"""A tiny data set that is read from disk, its batches, and a run on it."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from images import declare
from PIL import Image
from runs import CNN_WITH_BATCH_NORM

from resync.tasks.data.sampling import Sampler
from resync.tasks.data.streamed import Streamed
from resync.tasks.data_sets.declaration import DataSet

PER_CLASS = {"train": 8, "val": 2}
COUNTS = {"train_samples": 24, "val_samples": 6, "train_per_class": 8, "val_per_class": 2}
FOLDER = {"folder": "photos", "variant": "photos"}


def write_photos(folder: Path) -> None:
    """Images of three classes and of different sizes as PNG, in ImageNet's folders."""
    generator = np.random.default_rng(0)
    for split, number in PER_CLASS.items():
        for label in range(3):
            for index in range(number):
                height, width = generator.integers(20, 40, size=2)
                file = folder / split / f"n{label}" / f"{index}.JPEG"
                file.parent.mkdir(parents=True, exist_ok=True)
                coarse = generator.integers(256, size=(5, 5, 3), dtype=np.uint8)
                Image.fromarray(coarse).resize((int(width), int(height)), Image.Resampling.BICUBIC).save(file, "PNG")


def declared(folder: Path, **changes: Any) -> DataSet:
    """The data set of these images."""
    return declare(folder, [FOLDER], **{"streaming": {}, "input_shape": [3, 16, 16], **COUNTS, **changes})


def linked(folder: Path, original: Path, **changes: Any) -> tuple[DataSet, Path]:
    """The data set and its root, which has the images of the root `original`."""
    (folder / "root").mkdir()
    (folder / "root/photos").symlink_to(original / "photos")
    return declared(folder, **changes), folder / "root"


def sampler(seed: int = 7, replacement: bool = False) -> Sampler:
    return Sampler(24, num_workers=4, local_batch=2, steps=3, seed=seed, replacement=replacement)


def batches(of: Streamed, workers: slice = slice(0, 4), **changes: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    options = {"epoch": 1, "first_step": 0, **changes}
    plan = options.pop("plan", sampler())
    return list(of.batches(plan, options["epoch"], options["first_step"], workers))


def equal(some: list[tuple[torch.Tensor, torch.Tensor]], others: list[tuple[torch.Tensor, torch.Tensor]]) -> bool:
    return len(some) == len(others) and all(
        torch.equal(*pair) for one, other in zip(some, others, strict=True) for pair in zip(one, other, strict=True)
    )


SMALL_RUN = {
    **CNN_WITH_BATCH_NORM,
    "data": {"name": "tiny_imagenet_20_224", "format": "files", "decoders": 0, "augmentation": "strong"},
    "loss": {"mixup": 0.2, "label_smoothing": 0.1, "label_noise": 0.1},
    "batch_size": 8,
    "steps_per_epoch": 3,
    "epochs": 1,
    "schedule": {"name": "constant", "lr": 0.05},
}
