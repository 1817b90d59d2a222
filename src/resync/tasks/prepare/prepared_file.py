"""The prepared file of a data set, and the record of its origin beside it."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, TypeVar
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from resync.base.errors import UserError
from resync.base.files import replacing, write_text
from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.prepare.folders import prepared_file
from resync.tasks.prepare.record import damaged, missing, read_record

RECORD = {"variant": str, "source": str, "sha256": str}
"""What reading a prepared data set takes from its record."""

Pixels = NDArray[np.uint8]
Content = TypeVar("Content")


Images = dict[str, Pixels]
"""`train_images` and `val_images`, uint8 [N, channels, height, width], and their classes `train_labels`, ..., [N]."""
IMAGES = ("train_images", "train_labels", "val_images", "val_labels")


class Split(Protocol):
    """The images of a split, which are decoded one by one."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of every image, [N]."""

    def pixels(self, index: int) -> Pixels:
        """The pixels of an image, [height, width, 3]; a change of them changes nothing else."""


@dataclass(frozen=True)
class Prepared:
    """A prepared data set: its images, and its record.

    The record holds `name`, `variant`, `source` (below the data root), `source_sha256`, `file`, `sha256` of that file,
    `train_samples`, `val_samples`, `num_classes`, `input_shape` and `versions` of what decoded the images.
    """

    images: Images
    record: Mapping[str, Any]


def write(
    of: DataSet, root: Path, arrays: Mapping[str, NDArray[Any]], origin: Mapping[str, Any], counted: Mapping[str, Any]
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


def origin_of(variant: str, source: Path, source_sha256: str | None, *packages: str) -> dict[str, Any]:
    """The part of a record that tells what was converted, and with which versions of the packages."""
    sha256 = {"source_sha256": source_sha256} if source_sha256 else {}
    return {"variant": variant, "source": source.as_posix(), **sha256, "versions": {p: version(p) for p in packages}}


def counts(of: DataSet) -> dict[str, Any]:
    """Counts and shape of the images for a record, which are checked when the images are prepared."""
    return {name: of.facts[name] for name in ("train_samples", "val_samples", "num_classes", "input_shape")}


def load_record(of: DataSet, root: Path) -> dict[str, Any] | None:
    """The record of a prepared data set; None if it has not been prepared. Raises ValueError for a damaged one."""
    file = prepared_file(of, root)
    if not file.is_file() or not file.with_suffix(".json").is_file():
        return None
    return read_record(of, file.with_suffix(".json"), RECORD)


def load(of: DataSet, root: Path, verified: bool = True) -> Prepared:
    """Prepared images (see `read`). Raises ValueError also if they do not match their declaration."""
    images, record = read(of, root, lambda arrays: {name: arrays[name] for name in IMAGES}, verified)
    for split in ("train", "val"):
        shape = images[f"{split}_images"].shape
        if shape != (wanted := (of.facts[f"{split}_samples"], *of.facts["input_shape"])):
            raise damaged(of, prepared_file(of, root), f"found {split} images {list(shape)}, allowed: {list(wanted)}")
    return Prepared(images, record)


def read(
    of: DataSet, root: Path, made_of: Callable[[Mapping[str, NDArray[Any]]], Content], verified: bool = True
) -> tuple[Content, dict[str, Any]]:
    """The content that `made_of` makes from the arrays of the prepared file, and the file's record.

    Raises ValueError if the file is missing or damaged; if it is to be `verified`, also if it is not the one of the
    record; OSError if it cannot be read. The bytes that are verified are those that are read.
    """
    file, record = prepared_file(of, root), load_record(of, root)
    if record is None:
        raise missing(of, file)
    try:
        with file.open("rb") as stream:
            if verified:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
                if found != record["sha256"]:
                    raise UserError(f"SHA-256: found {found}, allowed: {record['sha256']}, that of its record")
                stream.seek(0)
            with np.load(stream) as arrays:
                return made_of(arrays), record
    except (BadZipFile, EOFError, KeyError, TypeError, ValueError, FileNotFoundError) as error:
        raise damaged(of, file, error) from error


def sums_sha256(sums: Iterable[tuple[str, str]]) -> str:
    """SHA-256 of the output of `sha256sum` for files, given the SHA-256 and the name of each."""
    return hashlib.sha256("".join(f"{sha256}  {name}\n" for sha256, name in sums).encode()).hexdigest()


def file_sha256(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
