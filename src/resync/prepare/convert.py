"""From original images to the prepared file."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from resync.config.components import Component, component, prepared_names
from resync.config.errors import ConfigError, not_among
from resync.prepare.properties import properties
from resync.prepare.sources import find
from resync.prepare.store import Images, Pixels, load_record, save


def declared(name: str) -> Component:
    """The data set of this name. Raises ConfigError for one that does not exist or needs no preparation."""
    if name not in (known := prepared_names()):
        raise ConfigError([f"data sets that are prepared: {not_among(name, known)}"])
    return component("data", name)


def prepare(of: Component, root: Path) -> dict[str, Any]:
    """Make the prepared file of a data set from its first source below `root`; its record (see `Prepared`).

    A data set that is prepared already is left as it is. Raises ValueError, with nothing written, where no source is
    there, or its images are damaged or not what the declaration says.
    """
    record = load_record(of, root)
    if record is not None:
        return record
    assert of.preparation
    original = find(of, root)
    images = _averaged(original.read(), of.preparation.average)
    for each in properties(of, images):
        if not each.holds:
            raise original.error(str(each))
    origin = {
        "variant": of.variant_of(original.source.variant),
        "source": original.path.relative_to(root).as_posix(),
        "source_sha256": original.sha256(),
        "versions": {package: version(package) for package in ("numpy", "pillow", "torchvision")},
    }
    return save(of, root, images, origin)


def _averaged(images: Images, side: int) -> Images:
    """Every square of `side` x `side` pixels becomes one, its mean, rounded to the nearest integer, halves up."""
    if side == 1:
        return images

    def averaged(pixels: Pixels) -> Pixels:
        number, channels, height, width = pixels.shape
        squares = pixels.reshape(number, channels, height // side, side, width // side, side)
        sums = squares.sum(axis=(3, 5), dtype=np.uint32)
        return ((sums + side**2 // 2) // side**2).astype(np.uint8)

    return Images(averaged(images.train_images), images.train_labels, averaged(images.val_images), images.val_labels)
