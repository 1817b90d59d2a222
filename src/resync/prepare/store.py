"""The prepared file of a data set, and the record beside it that says what it was made from."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from resync.config.components import Component
from resync.files import replacing, write_text

DATA_ROOT = "RESYNC_DATA"
"""The environment variable with the folder of all data."""

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Images:
    """Training and validation images, uint8 [N, channels, height, width], and their classes, uint8 [N]."""

    train_images: Pixels
    train_labels: Pixels
    val_images: Pixels
    val_labels: Pixels


@dataclass(frozen=True)
class Prepared:
    """A prepared data set: its images, and its record.

    The record holds `name`, `variant`, `source` (below the data root), `source_sha256`, `file`, `sha256` of that file,
    `train_samples`, `val_samples`, `num_classes`, `input_shape` and `versions` of what decoded the images.
    """

    images: Images
    record: Mapping[str, Any]


def data_root(of: Component) -> Path:
    """The folder that RESYNC_DATA names. Raises ValueError where it names none."""
    folder = os.environ.get(DATA_ROOT)
    if not folder:
        raise ValueError(f"data {of.name}: {DATA_ROOT} is not set, allowed: the folder of the data (docs/data.md)")
    if not Path(folder).is_dir():
        raise ValueError(f"data {of.name}: {DATA_ROOT}={folder}: no such folder")
    return Path(folder)


def prepared_file(of: Component, root: Path) -> Path:
    """Where the prepared images of a data set are."""
    return root / "prepared" / f"{of.name}.npz"


def save(of: Component, root: Path, images: Images, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Write the prepared file and its record, which adds to `origin` what the file is; the record.

    The record is written last and removed first: where there is one, it is the file's.
    """
    file = prepared_file(of, root)
    file.with_suffix(".json").unlink(missing_ok=True)
    with replacing(file) as stream:
        np.savez(stream, **vars(images))
    counts = {name: of.facts[name] for name in ("train_samples", "val_samples", "num_classes", "input_shape")}
    record = {"name": of.name, **origin, "file": file.name, "sha256": file_sha256(file), **counts}
    write_text(file.with_suffix(".json"), json.dumps(record, indent=2) + "\n")
    return record


def load_record(of: Component, root: Path) -> dict[str, Any] | None:
    """The record of a prepared data set; None where it has not been prepared."""
    file = prepared_file(of, root)
    if not file.is_file() or not file.with_suffix(".json").is_file():
        return None
    record: dict[str, Any] = json.loads(file.with_suffix(".json").read_text())
    return record


def load(of: Component, root: Path) -> Prepared:
    """A prepared data set. Raises ValueError where it is missing, damaged or not what its declaration says."""
    file, record = prepared_file(of, root), load_record(of, root)
    if record is None:
        raise ValueError(f"data {of.name}: {file} is missing; make it with: resync data prepare {of.name}")
    images = _read(of, file)
    shape = tuple(of.facts["input_shape"])
    for split in ("train", "val"):
        found = getattr(images, f"{split}_images").shape
        if found != (wanted := (of.facts[f"{split}_samples"], *shape)):
            again = f"delete it, then: resync data prepare {of.name}"
            raise ValueError(
                f"data {of.name}: {file}: found {split} images {list(found)}, allowed: {list(wanted)}; {again}"
            )
    return Prepared(images, record)


def _read(of: Component, file: Path) -> Images:
    """The arrays of the file, whose checksums are verified on the way."""
    try:
        with np.load(file) as arrays:
            return Images(**arrays)
    except (BadZipFile, EOFError, KeyError, TypeError, ValueError, OSError) as error:
        again = f"delete it, then: resync data prepare {of.name}"
        raise ValueError(f"data {of.name}: {file}: damaged ({error}); {again}") from error


def file_sha256(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
