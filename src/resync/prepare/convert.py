"""From original images and texts to the prepared file."""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from resync.config.data_sets import DataSet, data_set, prepared_names
from resync.prepare import beton
from resync.prepare.characters import check_characters, divided, original
from resync.prepare.folders import converting, require_writable
from resync.prepare.packed import check_packed, require_packer, save_packed
from resync.prepare.prepared_file import Images, Pixels, file_sha256, load_record, save, write
from resync.prepare.properties import Property, check_images, check_text, pairs, properties
from resync.prepare.raw_text import RawText
from resync.prepare.sources import find
from resync.prepare.stream import check_stream, prepare_stream
from resync.prepare.text import encode
from resync.settings.errors import ConfigError, not_among

Save = Callable[[DataSet, Path, Images, Mapping[str, Any]], dict[str, Any]]
"""Writes the prepared form of images, given their origin; returns its record."""


def declared(name: str) -> DataSet:
    """The data set of this name. Raises ConfigError if it does not exist or needs no preparation."""
    if name not in (known := prepared_names()):
        raise ConfigError([f"data sets that are prepared: {not_among(name, known)}"])
    return data_set(name)


def prepare(of: DataSet, root: Path, format: str | None = None) -> dict[str, Any]:
    """Make the prepared file of a data set from its first source below `root`; returns its record (see `Prepared`).

    A data set that is read from disk is prepared in this `format` (see `prepare_stream`), by default its own. A data
    set that is prepared already is left unchanged; one that another process converts is waited for. Raises ValueError,
    with nothing written, if there is no source, if it is damaged or does not match the declaration, or if FFCV is
    needed and not installed.
    """
    with converting(of, root):
        return _prepare(of, root, format)


def _prepare(of: DataSet, root: Path, format: str | None) -> dict[str, Any]:
    if of.preparation and of.preparation.streaming:
        return prepare_stream(of, root, format or of.config.model_fields["format"].default)
    _refuse(of, format)
    if of.text:
        return load_record(of, root) or _prepare_text(of, root)
    if of.characters:
        return load_record(of, root) or _prepare_characters(of, root)
    assert of.preparation
    if of.preparation.packed:
        require_packer(of)
        return beton.load_record(of, root) or _prepare_images(of, root, save_packed)
    return load_record(of, root) or _prepare_images(of, root, save)


def check(of: DataSet, root: Path, format: str | None = None) -> list[Property]:
    """The properties of the prepared data set. Raises ValueError if it is missing or cannot be read."""
    if of.preparation and of.preparation.streaming:
        return check_stream(of, root, format or of.config.model_fields["format"].default)
    _refuse(of, format)
    if of.text:
        return check_text(of, root)
    if of.characters:
        return check_characters(of, root)
    assert of.preparation
    return check_packed(of, root) if of.preparation.packed else check_images(of, root)


def _refuse(of: DataSet, format: str | None) -> None:
    if format:
        raise ValueError(f"data {of.name}: found format {format}, allowed: none, it is read into memory")


def _prepare_images(of: DataSet, root: Path, save: Save) -> dict[str, Any]:
    assert of.preparation
    require_writable(of, root)
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


def _prepare_text(of: DataSet, root: Path) -> dict[str, Any]:
    assert of.text
    require_writable(of, root)
    raw = RawText(of, root)
    lines = raw.lines()
    for each in pairs(of, {split: len(source) for split, (source, _) in lines.items()}):
        if not each.holds:
            raise ValueError(f"data {of.name}: {raw.folder}: {each}")
    text = encode(of, lines, of.text.max_ratio)
    origin = {
        "variant": of.text.variant,
        "source": of.text.folder,
        "source_sha256": raw.sha256(),
        "versions": {package: version(package) for package in ("numpy", "sentencepiece")},
    }
    facts = ("train_samples", "val_samples", "test_samples", "num_classes", "input_shape")
    counts = {name: of.facts[name] for name in facts} | text.train_counts
    return write(of, root, text.arrays(), origin, counts)


def _prepare_characters(of: DataSet, root: Path) -> dict[str, Any]:
    assert of.characters
    require_writable(of, root)
    file, text = original(of, root)
    origin = {
        "variant": of.characters.variant,
        "source": file.relative_to(root).as_posix(),
        "source_sha256": file_sha256(file),
        "versions": {"numpy": version("numpy")},
    }
    counts = {name: of.facts[name] for name in ("train_samples", "val_samples", "num_classes")}
    return write(of, root, divided(of, text).arrays(), origin, counts)


def _averaged(images: Images, side: int) -> Images:
    """Every square of `side` x `side` pixels is averaged into one, rounded to the nearest integer, halves up."""
    if side == 1:
        return images

    def averaged(pixels: Pixels) -> Pixels:
        number, channels, height, width = pixels.shape
        squares = pixels.reshape(number, channels, height // side, side, width // side, side)
        sums = squares.sum(axis=(3, 5), dtype=np.uint32)
        return ((sums + side**2 // 2) // side**2).astype(np.uint8)

    return Images(averaged(images.train_images), images.train_labels, averaged(images.val_images), images.val_labels)
