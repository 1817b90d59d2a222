"""The list of a data set's image files, for images that stay in place and are decoded during training."""

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from resync.config.data_sets import DataSet
from resync.prepare.prepared_file import Pixels, read_arrays
from resync.prepare.properties import Property, split_properties
from resync.prepare.sources import Original, places

FIELDS = "paths", "labels", "bytes", "heights", "widths"


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
        """The pixels of an image, uint8 [height, width, 3]. Raises ValueError for a damaged one."""
        file = self.folder / os.fsdecode(self.paths[index])
        try:
            with Image.open(file) as image:
                return np.array(image.convert("RGB"))
        except (OSError, SyntaxError) as error:
            raise ValueError(f"{file}: not an image, or a damaged one ({error})") from error


Listing = Mapping[str, ImageFiles]
"""The files of the splits `train` and `val`."""


def scan(original: Original) -> Listing:
    """List the image files of a folder. Raises ValueError if they do not match the declaration."""
    if not original.path.is_dir():
        folder = original.root / original.source.folder
        raise original.error(f"an archive, allowed: a folder; unpack it to get {folder}/train (docs/data.md)")
    paths = (path.relative_to(original.path).as_posix() for path in _files(original.path))
    listing = {split: _described(original, split, *found) for split, found in places(original, paths).items()}
    for each in split_properties(original.of, listing):
        if not each.holds:
            raise original.error(str(each))
    return listing


def arrays_of(listing: Listing) -> dict[str, NDArray[Any]]:
    """The listing as arrays to be saved."""
    return {f"{split}_{field}": getattr(files, field) for split, files in listing.items() for field in FIELDS}


def load_listing(of: DataSet, file: Path, folder: Path) -> Listing:
    """The listing that was saved to `file`, of images in `folder`. Raises ValueError if the file is damaged."""
    names = {split: [f"{split}_{field}" for field in FIELDS] for split in ("train", "val")}
    arrays = read_arrays(of, file, chain.from_iterable(names.values()))
    return {split: ImageFiles(folder, *(arrays[name] for name in names[split])) for split in names}


def unchanged(listing: Listing) -> list[Property]:
    """Whether every file still exists with its length."""
    return [
        Property(f"{split} files missing or changed", str(_changed(files)), ("0",)) for split, files in listing.items()
    ]


def _changed(files: ImageFiles) -> int:
    def length(path: bytes) -> int:
        try:
            return (files.folder / os.fsdecode(path)).stat().st_size
        except FileNotFoundError:
            return -1

    with ThreadPoolExecutor() as pool:
        found = np.fromiter(pool.map(length, files.paths), np.int64, len(files.paths))
    return int((found != files.bytes).sum())


def _files(folder: Path) -> Iterable[Path]:
    return (Path(parent, name) for parent, _, names in os.walk(folder, followlinks=True) for name in names)


def _described(original: Original, split: str, paths: Sequence[str], labels: Sequence[int]) -> ImageFiles:
    """The files with their lengths and their image sizes, which are in the first bytes of each file."""
    from tqdm import tqdm

    def described(path: str) -> tuple[int, int, int]:
        file = original.path / path
        try:
            with Image.open(file) as image:
                return file.stat().st_size, image.height, image.width
        except (OSError, SyntaxError) as error:
            raise original.error(f"{path}: not an image, or a damaged one") from error

    with ThreadPoolExecutor() as pool:
        found = pool.map(described, paths)
        progress = tqdm(found, f"{original.of.name} {split}", len(paths), unit="image", disable=None)
        lengths, heights, widths = np.array(list(progress), dtype=np.int64).reshape(-1, 3).T
    encoded = np.array([os.fsencode(path) for path in paths])
    return ImageFiles(original.path, encoded, np.array(labels, dtype=np.int64), lengths, heights, widths)
