"""The prepared file of a data set, and the record of its origin beside it."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from resync.config.data_sets import DataSet
from resync.files import replacing, write_text

DATA_ROOT = "RESYNC_DATA"
"""The environment variable that names the folder of all data."""

Pixels = NDArray[np.uint8]
Content = TypeVar("Content")


@dataclass(frozen=True)
class Images:
    """Training and validation images, uint8 [N, channels, height, width], and their classes, uint8 [N]."""

    train_images: Pixels
    train_labels: Pixels
    val_images: Pixels
    val_labels: Pixels


class Split(Protocol):
    """The images of a split, which are decoded one by one."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of every image, [N]."""

    def pixels(self, index: int) -> Pixels:
        """The pixels of an image, [height, width, 3], as a copy. Raises ValueError for a damaged image."""


@dataclass(frozen=True)
class Prepared:
    """A prepared data set: its images, and its record.

    The record holds `name`, `variant`, `source` (below the data root), `source_sha256`, `file`, `sha256` of that file,
    `train_samples`, `val_samples`, `num_classes`, `input_shape` and `versions` of what decoded the images.
    """

    images: Images
    record: Mapping[str, Any]


def data_root(of: DataSet) -> Path:
    """The folder that RESYNC_DATA names. Raises ValueError if it names none."""
    folder = os.environ.get(DATA_ROOT)
    if not folder:
        raise ValueError(f"data {of.name}: {DATA_ROOT} is not set, allowed: the folder of the data (docs/data.md)")
    if not Path(folder).is_dir():
        raise ValueError(f"data {of.name}: {DATA_ROOT}={folder}: no such folder")
    return Path(folder)


def prepared_file(of: DataSet, root: Path) -> Path:
    """The path of the prepared data set."""
    return root / "prepared" / f"{of.name}.npz"


def save(of: DataSet, root: Path, images: Images, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Write the prepared file of images in memory and its record (see `write`)."""
    return write(of, root, vars(images), origin, counts(of))


def write(
    of: DataSet,
    root: Path,
    arrays: Mapping[str, NDArray[Any]],
    origin: Mapping[str, Any],
    counted: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the prepared file with these arrays, and its record: `origin`, the file's checksum, and `counted`.

    The record is written last and removed first, so that an existing record always belongs to the file.
    """
    file = prepared_file(of, root)
    file.with_suffix(".json").unlink(missing_ok=True)
    with replacing(file) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]
    record = {"name": of.name, **origin, "file": file.name, "sha256": file_sha256(file), **counted}
    write_text(file.with_suffix(".json"), json.dumps(record, indent=2) + "\n")
    return record


def counts(of: DataSet) -> dict[str, Any]:
    """Counts and shape of the images for a record, which are checked when the images are prepared."""
    return {name: of.facts[name] for name in ("train_samples", "val_samples", "num_classes", "input_shape")}


def load_record(of: DataSet, root: Path) -> dict[str, Any] | None:
    """The record of a prepared data set; None if it has not been prepared."""
    file = prepared_file(of, root)
    if not file.is_file() or not file.with_suffix(".json").is_file():
        return None
    record: dict[str, Any] = json.loads(file.with_suffix(".json").read_text())
    return record


def load(of: DataSet, root: Path) -> Prepared:
    """Prepared images. Raises ValueError if they are missing or damaged, or do not match their declaration."""
    images, record = read(of, root, lambda arrays: Images(**arrays))
    shape = tuple(of.facts["input_shape"])
    for split in ("train", "val"):
        found = getattr(images, f"{split}_images").shape
        if found != (wanted := (of.facts[f"{split}_samples"], *shape)):
            again = f"delete it, then: resync data prepare {of.name}"
            raise ValueError(
                f"data {of.name}: {prepared_file(of, root)}: found {split} images {list(found)}, "
                f"allowed: {list(wanted)}; {again}"
            )
    return Prepared(images, record)


def read_arrays(of: DataSet, file: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Arrays of a file, with verified checksums. Raises ValueError if the file is damaged."""
    return _made(of, file, lambda arrays: {name: arrays[name] for name in names})


def missing(of: DataSet, file: Path, flags: str = "") -> ValueError:
    """The error for a missing file, with the command (and its `flags`) that makes it."""
    return ValueError(f"data {of.name}: {file} is missing; make it with: resync data prepare {flags}{of.name}")


def damaged(of: DataSet, file: Path, reason: object, others: str = "") -> ValueError:
    """The error for a damaged file, which should be deleted, like the `others`, and made again."""
    again = f"delete it{others}, then: resync data prepare {of.name}"
    return ValueError(f"data {of.name}: {file}: damaged ({reason}); {again}")


def read(
    of: DataSet, root: Path, made_of: Callable[[Mapping[str, NDArray[Any]]], Content]
) -> tuple[Content, dict[str, Any]]:
    """The content that `made_of` makes from the verified arrays of the prepared file, and the file's record.

    Raises ValueError if the file is missing or damaged.
    """
    file, record = prepared_file(of, root), load_record(of, root)
    if record is None:
        raise missing(of, file)
    return _made(of, file, made_of), record


def _made(of: DataSet, file: Path, made_of: Callable[[Mapping[str, NDArray[Any]]], Content]) -> Content:
    try:
        with np.load(file) as arrays:
            return made_of(arrays)
    except (BadZipFile, EOFError, KeyError, TypeError, ValueError, OSError) as error:
        raise damaged(of, file, error) from error


def sums_sha256(sums: Iterable[tuple[str, str]]) -> str:
    """SHA-256 of the output of `sha256sum` for files, given the SHA-256 and the name of each."""
    return hashlib.sha256("".join(f"{sha256}  {name}\n" for sha256, name in sums).encode()).hexdigest()


def file_sha256(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
