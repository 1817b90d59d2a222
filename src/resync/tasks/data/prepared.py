"""Data sets in memory from their prepared files."""

from dataclasses import replace

import torch

from resync.base.streams import stream
from resync.tasks.data.memory import InMemory
from resync.tasks.data.pixels import Pixels
from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.data_sets.readers import MemoryReader
from resync.tasks.prepare import data_root, load


def read(of: DataSet, augmentation: str = "none", held_out: int | None = None) -> InMemory:
    """The data set `of`: images stay 8-bit in memory and are converted to inputs batch by batch (see `Pixels.of`).

    With `held_out`, so many training images take the place of the validation images, and the variant says so. Raises
    ValueError if the data set has not been prepared.
    """
    assert isinstance(of.reader, MemoryReader)
    prepared = load(of, data_root(of))
    images = {name: torch.from_numpy(array) for name, array in prepared.images.items()}
    padding = of.reader.crop_padding if augmentation == "crop_flip" else None
    data = InMemory(
        train_inputs=images["train_images"],
        train_targets=images["train_labels"].long(),
        val_inputs=images["val_images"],
        val_targets=images["val_labels"].long(),
        variant=prepared.record["variant"],
        sha256=prepared.record["sha256"],
        pixels=Pixels.of(of.reader.mean, of.reader.std, of.facts["input_shape"], padding),
    )
    return data if held_out is None else _hold_out(data, held_out)


def _hold_out(images: InMemory, number: int) -> InMemory:
    """The split is a function of the numbers of images, so that all runs validate on the same ones."""
    order = torch.from_numpy(stream(0, "held-out").permutation(images.num_train))
    val, train = order[:number], order[number:].sort().values
    return replace(
        images,
        train_inputs=images.train_inputs[train],
        train_targets=images.train_targets[train],
        val_inputs=images.train_inputs[val],
        val_targets=images.train_targets[val],
        variant=f"{images.variant}, {number} training images held out",
    )
