"""Original images in common layouts: torchvision's folders, folders of image files, and archives of these."""

import csv
import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image

from resync.base.errors import UserError
from resync.base.files import files_below, lines_of, text_of
from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.data_sets.preparation import ImageRows, Source
from resync.tasks.prepare.prepared_file import Images, Pixels, file_sha256, sums_sha256

SPLITS = {"train": "train", "test": "val", "val": "val"}
"""The split of each folder of image files."""


Places = dict[str, tuple[list[str], list[int]]]
"""The paths of the image files of each split, and their classes."""


@dataclass(frozen=True)
class Original:
    """The original images of a data set `of` below `root`, in the folder or archive `path`."""

    of: DataSet
    source: Source
    root: Path
    path: Path

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image, before any averaging."""
        assert self.of.preparation
        channels, height, width = self.of.facts["input_shape"]
        return channels, height * self.of.preparation.average, width * self.of.preparation.average

    def read(self) -> Images:
        """All images: files in the order of classes and paths, torchvision's in its own order."""
        if self.source.sheets:
            images = _from_sheets(self, self.source.sheets)
        else:
            images = _from_torchvision(self) if self.source.torchvision else _from_files(self)
        if self.source.pixels_sha256:
            parts = ((split, images[f"{split}_labels"], images[f"{split}_images"]) for split in ("train", "val"))
            self._require_sha256("pixels", self.source.pixels_sha256, parts)
        return images

    def require_files(self, by_split: Places, read: Callable[[str], bytes]) -> None:
        """Raise ValueError unless the image files have the declared SHA-256, if one is declared."""
        if self.source.files_sha256:
            parts = ((split, labels, map(read, paths)) for split, (paths, labels) in by_split.items())
            self._require_sha256("files", self.source.files_sha256, parts)

    def _require_sha256(
        self, of_what: str, declared: str, parts: Iterable[tuple[str, Iterable[int], Iterable[Any]]]
    ) -> None:
        """Raise ValueError unless the images have the declared SHA-256.

        It is that of the sorted digests of all images, each with its split and class, so that their order has none.
        """
        digests = sorted(
            hashlib.sha256(f"{split} {label} ".encode() + bytes(content)).digest()
            for split, labels, contents in parts
            for label, content in zip(labels, contents, strict=True)
        )
        if (found := hashlib.sha256(b"".join(digests)).hexdigest()) != declared:
            raise self.error(
                f"SHA-256 of the {of_what}: found {found}, allowed: {declared}, that of {self.source.variant}"
            )

    def sha256(self) -> str:
        """SHA-256 of the archive; for a folder, of the output of `sha256sum` for its files in the order of names."""
        if self.path.is_file():
            return file_sha256(self.path)
        files = sorted(files_below(self.path))
        return sums_sha256((file_sha256(path), path.relative_to(self.path).as_posix()) for path in files)

    def error(self, found: str) -> UserError:
        return self.of.error(f"{self.path}: {found}")


def find(of: DataSet, root: Path) -> Original:
    """The first of a data set's declared sources that exists below `root`. Raises ValueError if none does."""
    assert of.preparation
    looked_for = []
    for source in of.preparation.sources:
        for evidence, path in places_of(source, root):
            if evidence.exists():
                return Original(of, source, root, path)
            looked_for.append(str(evidence))
    raise of.error(f"found none of {', '.join(looked_for)} (docs/data.md)")


def places_of(source: Source, root: Path) -> Iterator[tuple[Path, Path]]:
    """Possible places of a source: the path that has to exist, and the path to read."""
    folder = root / source.folder
    if source.torchvision or source.sheets:
        yield folder, folder
    else:
        yield folder / "train", folder
        archive = folder / f"{folder.name}.tar.gz"
        yield archive, archive


def _from_torchvision(original: Original) -> Images:
    """Read with torchvision's class, which verifies the checksums of CIFAR-10's files."""
    # torch takes seconds to import, and nothing else in this module needs it.
    from torchvision import datasets

    name = str(original.source.torchvision)
    arrays: Images = {}
    for split, train in (("train", True), ("val", False)):
        try:
            data_set = getattr(datasets, name)(original.root, train=train, download=False)
        except Exception as error:  # torchvision has no exceptions of its own: those of pickle, struct, numpy pass
            reason = str(error).split(". You can use download")[0] or type(error).__name__
            raise original.error(f"torchvision.datasets.{name} cannot read it: {reason}") from error
        images = np.asarray(data_set.data)
        images = images[:, None] if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        if images.shape[1:] != original.shape:
            raise original.error(f"found images {list(images.shape[1:])}, allowed: {list(original.shape)}")
        arrays[f"{split}_images"] = images
        arrays[f"{split}_labels"] = np.asarray(data_set.targets, dtype=np.uint8)
    return arrays


def _from_sheets(original: Original, sheets: ImageRows) -> Images:
    try:
        with (original.path / sheets.labels).open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, delimiter="\t")
            labels = {(int(row["batch"]), int(row["row"])): int(row["label"]) for row in rows}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise original.error(f"{sheets.labels}: no table of batch, row and label ({error})") from error
    channels, height, width = original.shape
    arrays: Images = {}
    for split, names in (("train", sheets.train), ("val", sheets.val)):
        images, classes = [], []
        for name in names:
            try:
                content = (original.path / name).read_bytes()
            except OSError as error:
                raise original.error(f"{name}: cannot be read ({error})") from error
            number = int(Path(name).stem.rpartition("_")[2])
            pixels = _pixels(original, name, content, (height * width, None))
            images.append(pixels.reshape(-1, height, width, channels).transpose(0, 3, 1, 2))
            classes += [labels.get((number, row), -1) for row in range(len(pixels))]
            if min(classes) < 0:
                raise original.error(f"{name}: has a row that {sheets.labels} does not list")
        arrays[f"{split}_images"] = np.ascontiguousarray(np.concatenate(images))
        arrays[f"{split}_labels"] = np.array(classes, dtype=np.uint8)
    return arrays


def _from_files(original: Original) -> Images:
    """Read train/<class>/... and test/<class>/...; with a table of validation labels, val/... in any layout."""
    contents = dict(_files(original))
    arrays: Images = {}
    by_split = places(original, contents)
    original.require_files(by_split, contents.__getitem__)
    for split, (paths, labels) in by_split.items():
        arrays[f"{split}_images"] = _decode_all(original, split, [(path, contents[path]) for path in paths])
        arrays[f"{split}_labels"] = np.array(labels, dtype=np.uint8)
    return arrays


def places(original: Original, paths: Iterable[str]) -> Places:
    """The image files of each split and their classes, in the order of classes and paths.

    Classes are numbered in the order of their names. Raises ValueError if they do not match the declaration.
    """
    table = _val_labels(original)
    by_split: dict[str, list[tuple[str, str]]] = {"train": [], "val": []}
    for path in paths:
        place = _split_and_class(original, PurePosixPath(path), table)
        if place:
            split, category = place
            by_split[split].append((category, path))
    numbers = {name: number for number, name in enumerate(sorted({category for category, _ in by_split["train"]}))}
    if foreign := {category for category, _ in by_split["val"]} - set(numbers):
        without_table = original.source.val_labels and not table
        hint = f", and no table {original.source.val_labels}" if without_table else ""
        raise original.error(f"found validation images of {min(foreign)}, which has no training images{hint}")
    if len(numbers) != (wanted := original.of.facts["num_classes"]):
        raise original.error(f"found training images of {len(numbers)} classes, allowed: {wanted}")
    return {
        split: ([path for _, path in sorted(files)], [numbers[category] for category, _ in sorted(files)])
        for split, files in by_split.items()
    }


def _val_labels(original: Original) -> dict[str, str]:
    folder = original.path if original.path.is_dir() else original.path.parent
    table = folder / (original.source.val_labels or "")
    if not table.is_file():
        return {}
    try:
        return dict(line.split("\t")[:2] for line in lines_of(text_of(table.read_bytes())))
    except (OSError, ValueError) as error:
        raise original.error(f"needs file name and class of every validation image in {table} ({error})") from error


def _split_and_class(original: Original, path: PurePosixPath, table: dict[str, str]) -> tuple[str, str] | None:
    folders = path.parts[:-1]
    for position, folder in enumerate(folders, start=1):
        if folder not in SPLITS:
            continue
        split = SPLITS[folder]
        if split == "train" or not table:
            return (split, folders[position]) if position < len(folders) else None
        if path.name not in table:
            raise original.error(f"{path}: has no class in {original.source.val_labels}")
        return split, table[path.name]
    return None


def _files(original: Original) -> Iterator[tuple[str, bytes]]:
    if original.path.is_dir():
        for path in files_below(original.path):
            try:
                yield path.relative_to(original.path).as_posix(), path.read_bytes()
            except OSError as error:
                raise original.error(f"{path.relative_to(original.path)}: cannot be read ({error.strerror})") from error
        return
    try:
        with tarfile.open(original.path) as archive:
            for member in archive:
                file = archive.extractfile(member)
                if file:
                    yield member.name, file.read()
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, KeyError, OSError) as error:
        raise original.error(f"the archive is damaged or incomplete ({error})") from error


def _decode_all(original: Original, split: str, files: Sequence[tuple[str, bytes]]) -> Pixels:
    from tqdm import tqdm

    channels, height, width = original.shape
    images = np.empty((len(files), channels, height, width), dtype=np.uint8)
    progress = tqdm(files, desc=f"{original.of.name} {split}", unit="image", disable=None)
    for image, (path, content) in zip(images, progress, strict=True):
        pixels = _pixels(original, path, content, (width, height))
        image[:] = pixels.reshape(height, width, channels).transpose(2, 0, 1)
    return images


def _pixels(original: Original, path: str, content: bytes, size: tuple[int, int | None]) -> Pixels:
    """The pixels of a picture of this width and height, or of any height if that is None.

    Greyscale images of a colour set get three channels.
    """
    modes = ("RGB", "L") if original.shape[0] == 3 else ("L",)
    width, height = size
    with decoding(path, original.error), Image.open(BytesIO(content)) as image:
        if image.mode not in modes or image.size != (width, height or image.height):
            found = f"{image.width}x{image.height} {image.mode}"
            raise original.error(f"{path}: found {found}, allowed: {width}x{height or 'N'} {' or '.join(modes)}")
        return np.asarray(image.convert(modes[0]))


@contextmanager
def decoding(place: str, error: Callable[[str], UserError] = UserError) -> Iterator[None]:
    """Within the block, whatever Pillow raises becomes an `error` that names the `place` of the picture.

    Pillow's decoders have no exceptions in common: OSError, SyntaxError, ValueError, struct.error and others occur.
    """
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as reason:
        said = str(reason) or type(reason).__name__
        raise error(f"{place}: not an image, or a damaged one ({said})") from reason
