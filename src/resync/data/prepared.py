"""Data sets in memory from their prepared files."""

from collections.abc import Sequence

import torch

from resync.config.components import component
from resync.data.memory import InMemory
from resync.data.pixels import Pixels
from resync.prepare import data_root, load, load_packed


def from_prepared(name: str, mean: Sequence[float], std: Sequence[float], padding: int | None = None) -> InMemory:
    """The data set `name`: images stay 8-bit in memory and become inputs batch by batch (see `Pixels.of`).

    Raises ValueError where it has not been prepared.
    """
    of = component("data", name)
    assert of.preparation
    prepared = (load_packed if of.preparation.packed else load)(of, data_root(of))
    images = prepared.images
    return InMemory(
        train_inputs=torch.from_numpy(images.train_images),
        train_targets=torch.from_numpy(images.train_labels).long(),
        val_inputs=torch.from_numpy(images.val_images),
        val_targets=torch.from_numpy(images.val_labels).long(),
        variant=prepared.record["variant"],
        sha256=prepared.record["sha256"],
        pixels=Pixels.of(mean, std, of.facts["input_shape"], padding),
    )
