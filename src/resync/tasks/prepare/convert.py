"""From original images and texts to the prepared file."""

from pathlib import Path
from typing import Any

import numpy as np

from resync.base.settings.errors import ConfigError, not_among
from resync.tasks.data_sets.declaration import DataSet, data_set, prepared_names
from resync.tasks.data_sets.preparation import Preparation, TextPreparation
from resync.tasks.prepare.characters import CharacterText, character_properties, divide, original
from resync.tasks.prepare.folders import converting, prepared_file, require_writable
from resync.tasks.prepare.prepared_file import Images, counts, file_sha256, load, load_record, origin_of, read, write
from resync.tasks.prepare.properties import Property, pairs, properties, require_all, text_properties, variant
from resync.tasks.prepare.raw_text import RawText
from resync.tasks.prepare.sources import find
from resync.tasks.prepare.stream import check_stream, prepare_stream
from resync.tasks.prepare.text import ParallelCorpus, encode


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
        if _streams(of, format):
            return prepare_stream(of, root, format or of.config.model_fields["format"].default)
        if known := load_record(of, root):
            return known
        require_writable(of, root)
        if of.preparation:
            return _prepare_images(of, of.preparation, root)
        return _prepare_text(of, of.text, root) if of.text else _prepare_characters(of, root)


def check(of: DataSet, root: Path, format: str | None = None) -> list[Property]:
    """The properties of the prepared data set. Raises ValueError if it is missing or cannot be read."""
    if _streams(of, format):
        return check_stream(of, root, format or of.config.model_fields["format"].default)
    if of.preparation:
        prepared = load(of, root, verified=False)
        record, of_content = prepared.record, properties(of, prepared.images)
    elif of.text:
        corpus, record = read(of, root, ParallelCorpus.from_arrays, verified=False)
        of_content = text_properties(of, corpus, record)
    else:
        text, record = read(of, root, CharacterText.from_arrays, verified=False)
        of_content = character_properties(of, len(text.train) + len(text.val), len(text.alphabet))
    sha256 = Property("sha256", file_sha256(prepared_file(of, root)), (record["sha256"],))
    return [variant(of, record), *of_content, sha256]


def _streams(of: DataSet, format: str | None) -> bool:
    if of.preparation and of.preparation.streaming:
        return True
    if format:
        raise of.error(f"found format {format}, allowed: none, it is read into memory")
    return False


def _prepare_images(of: DataSet, preparation: Preparation, root: Path) -> dict[str, Any]:
    original = find(of, root)
    images = _average(original.read(), preparation.average)
    require_all(properties(of, images), original.error)
    variant, source = of.variant_of(original.source.variant), original.path.relative_to(root)
    origin = origin_of(variant, source, original.sha256(), "numpy", "pillow", "torchvision")
    return write(of, root, images, origin, counts(of))


def _prepare_text(of: DataSet, preparation: TextPreparation, root: Path) -> dict[str, Any]:
    raw = RawText(of, root)
    lines = raw.lines()
    require_all(pairs(of, {split: len(source) for split, (source, _) in lines.items()}), raw.error)
    text = encode(of, lines, preparation.max_ratio)
    origin = origin_of(preparation.variant, Path(preparation.folder), raw.sha256(), "numpy", "sentencepiece")
    facts = ("train_samples", "val_samples", "test_samples", "num_classes", "input_shape")
    return write(of, root, text.arrays(), origin, {name: of.facts[name] for name in facts} | text.train_counts)


def _prepare_characters(of: DataSet, root: Path) -> dict[str, Any]:
    assert of.characters
    file, text = original(of, root)
    origin = origin_of(of.characters.variant, file.relative_to(root), file_sha256(file), "numpy")
    counted = {name: of.facts[name] for name in ("train_samples", "val_samples", "num_classes")}
    return write(of, root, divide(of, text).arrays(), origin, counted)


def _average(images: Images, side: int) -> Images:
    """Every square of `side` x `side` pixels is averaged into one, rounded to the nearest integer, halves up."""
    for split in ("train", "val") if side > 1 else ():
        number, channels, height, width = images[f"{split}_images"].shape
        squares = images[f"{split}_images"].reshape(number, channels, height // side, side, width // side, side)
        sums = squares.sum(axis=(3, 5), dtype=np.uint32)
        images[f"{split}_images"] = ((sums + side**2 // 2) // side**2).astype(np.uint8)
    return images
