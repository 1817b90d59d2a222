"""Data sets in memory from their prepared files."""

import torch

from resync.config.data_sets import DataSet
from resync.config.readers import MemoryReader
from resync.data.memory import InMemory
from resync.data.pixels import Pixels
from resync.prepare import data_root, load, load_packed


def read(of: DataSet, augmentation: str = "none") -> InMemory:
    """The data set `of`: images stay 8-bit in memory and are converted to inputs batch by batch (see `Pixels.of`).

    Raises ValueError if it has not been prepared.
    """
    assert of.preparation
    assert isinstance(of.reader, MemoryReader)
    prepared = (load_packed if of.preparation.packed else load)(of, data_root(of))
    images = prepared.images
    padding = of.reader.crop_padding if augmentation == "crop_flip" else None
    return InMemory(
        train_inputs=torch.from_numpy(images.train_images),
        train_targets=torch.from_numpy(images.train_labels).long(),
        val_inputs=torch.from_numpy(images.val_images),
        val_targets=torch.from_numpy(images.val_labels).long(),
        variant=prepared.record["variant"],
        sha256=prepared.record["sha256"],
        pixels=Pixels.of(of.reader.mean, of.reader.std, of.facts["input_shape"], padding),
    )
