"""The list of a data set's image files, for images that stay in place and are decoded during training."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from resync.base.errors import UserError
from resync.base.files import files_below
from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.prepare.prepared_file import Pixels, read
from resync.tasks.prepare.properties import Property, require_all, split_properties
from resync.tasks.prepare.sources import Original, decoding, places

FIELDS = "paths", "labels", "bytes", "heights", "widths"

LOOKED_AT = 100
"""Files of each split whose lengths are compared when training starts; those of all are, as they are read."""


@dataclass(frozen=True)
class ImageFiles:
    """The image files of one split below `folder`: paths, classes, lengths and image sizes, all [N]."""

    folder: Path
    paths: NDArray[np.bytes_]
    labels: NDArray[np.int64]
    bytes: NDArray[np.int64]
    heights: NDArray[np.int64]
    widths: NDArray[np.int64]

    def pixels(self, index: int) -> Pixels:
        """The pixels of an image, uint8 [height, width, 3]."""
        file = self.file(index)
        content = file.read_bytes()
        self.require_length(index, len(content))
        with decoding(str(file)), Image.open(BytesIO(content)) as image:
            return np.array(image.convert("RGB"))

    def file(self, index: int) -> Path:
        return self.folder / os.fsdecode(self.paths[index])

    def require_length(self, index: int, length: int) -> None:
        if length != self.bytes[index]:
            allowed = f"{self.bytes[index]}, its length when the images were listed"
            raise UserError(f"{self.file(index)}: found {length} bytes, allowed: {allowed} (docs/data.md)")


Listing = Mapping[str, ImageFiles]
"""The files of the splits `train` and `val`."""


def scan(original: Original) -> Listing:
    """List the image files of a folder. Raises ValueError if they do not match the declaration."""
    if not original.path.is_dir():
        folder = original.root / original.source.folder
        raise original.error(f"an archive, allowed: a folder; unpack it to get {folder}/train (docs/data.md)")
    paths = (path.relative_to(original.path).as_posix() for path in files_below(original.path))
    by_split = places(original, paths)
    original.require_files(by_split, lambda path: (original.path / path).read_bytes())
    listing = {split: _describe(original, split, *files) for split, files in by_split.items()}
    require_all(split_properties(original.of, listing), original.error)
    return listing


def arrays_of(listing: Listing) -> dict[str, NDArray[Any]]:
    """The listing as arrays to be saved."""
    return {f"{split}_{field}": getattr(files, field) for split, files in listing.items() for field in FIELDS}


def load_listing(of: DataSet, root: Path, verified: bool = True) -> tuple[Listing, dict[str, Any]]:
    """The prepared list of image files, and its record (see `prepared_file.read`)."""

    def made_of(arrays: Mapping[str, NDArray[Any]]) -> dict[str, list[NDArray[Any]]]:
        return {split: [arrays[f"{split}_{field}"] for field in FIELDS] for split in ("train", "val")}

    fields, record = read(of, root, made_of, verified)
    return {split: ImageFiles(root / record["source"], *arrays) for split, arrays in fields.items()}, record


def refuse_changed(of: DataSet, listing: Listing) -> None:
    """Raise ValueError if one of a few evenly spaced files is missing or has another length."""
    for files in listing.values():
        for index in range(0, len(files.paths), -(-len(files.paths) // LOOKED_AT)):
            try:
                files.require_length(index, files.file(index).stat().st_size)
            except (OSError, ValueError) as error:
                raise of.error(error) from error


def unchanged(listing: Listing) -> list[Property]:
    """Whether every file still exists with its length."""
    return [
        Property(f"{split} files missing or changed", str(_count_changed(files)), ("0",))
        for split, files in listing.items()
    ]


def _count_changed(files: ImageFiles) -> int:
    def length(path: bytes) -> int:
        try:
            return (files.folder / os.fsdecode(path)).stat().st_size
        except FileNotFoundError:
            return -1

    with ThreadPoolExecutor() as pool:
        lengths = np.fromiter(pool.map(length, files.paths), np.int64, len(files.paths))
    return int((lengths != files.bytes).sum())


def _describe(original: Original, split: str, paths: Sequence[str], labels: Sequence[int]) -> ImageFiles:
    from tqdm import tqdm

    def describe(path: str) -> tuple[int, int, int]:
        file = original.path / path
        with decoding(path, original.error), Image.open(file) as image:
            return file.stat().st_size, image.height, image.width

    with ThreadPoolExecutor() as pool:
        descriptions = pool.map(describe, paths)
        progress = tqdm(descriptions, f"{original.of.name} {split}", len(paths), unit="image", disable=None)
        lengths, heights, widths = np.array(list(progress), dtype=np.int64).reshape(-1, 3).T
    encoded = np.array([os.fsencode(path) for path in paths])
    return ImageFiles(original.path, encoded, np.array(labels, dtype=np.int64), lengths, heights, widths)
