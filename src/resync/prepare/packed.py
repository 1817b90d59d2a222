"""Image sets that fit in memory and are stored as FFCV's .beton files, which training reads as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resync.data_sets.declaration import DataSet
from resync.prepare import beton
from resync.prepare.prepared_file import Images, Pixels, Prepared
from resync.prepare.record import missing


@dataclass(frozen=True)
class _Arrays:
    """A split in memory: images uint8 [N, 3, height, width] and their classes."""

    images: Pixels
    labels: NDArray[np.int64]

    def pixels(self, index: int) -> Pixels:
        return np.ascontiguousarray(self.images[index].transpose(1, 2, 0))


def save_packed(of: DataSet, root: Path, images: Images, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Write the images as .beton files, and return their record (see `beton.prepare`)."""
    splits = {
        split: _Arrays(images[f"{split}_images"], images[f"{split}_labels"].astype(np.int64))
        for split in ("train", "val")
    }
    return beton.prepare(of, root, origin, {"source_sha256": origin["source_sha256"]}, splits)


def load_packed(of: DataSet, root: Path, whole: bool = True) -> Prepared:
    """The images of the .beton files, which are verified as a whole, or in part (see `beton.load`).

    Raises ValueError if one is missing or damaged, or FFCV is not installed.
    """
    beton.require_ffcv(of, "its .beton files need")
    record = beton.load_record(of, root)
    if record is None:
        raise missing(of, beton.record_file(of, root))
    arrays: Images = {}
    for split, images in beton.load(of, root, record, whole).items():
        decoded = np.stack([images.pixels(index) for index in range(len(images.labels))])
        arrays[f"{split}_images"] = np.ascontiguousarray(decoded.transpose(0, 3, 1, 2))
        arrays[f"{split}_labels"] = images.labels.astype(np.uint8)
    return Prepared(arrays, record)
