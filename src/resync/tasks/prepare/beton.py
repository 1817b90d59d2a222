"""Image sets packed by FFCV (Leclerc et al. 2023): .beton files of downscaled images, partly JPEG, partly raw."""

import hashlib
import json
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing import RawValue, SimpleQueue
from multiprocessing.context import ForkProcess
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resync.base.files import write_text
from resync.base.processes.signals import end_with_parent
from resync.base.settings.errors import show
from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.data_sets.preparation import Packing
from resync.tasks.prepare.folders import prepared_file, require_writable
from resync.tasks.prepare.prepared_file import RECORD, Pixels, Split, counts, file_sha256, sums_sha256
from resync.tasks.prepare.properties import Property
from resync.tasks.prepare.record import damaged, read_record, require

IMAGES_IN_A_FILE = 50_000
"""Images per file; an interrupted conversion continues with the first incomplete file."""

IMAGES_OF_A_PROCESS = 500
"""Images per writing process; fewer are not worth starting one."""

SILENT_SECONDS, POLL_SECONDS = 120, 0.1
"""Time without progress after which the writer counts as failed, and the interval between checks."""

END_BYTES = 2 << 20
"""Bytes at each end of a file that are verified when it is opened: FFCV keeps classes and places of images there."""

BLOCKS, BLOCK_BYTES = 16, 4096
"""Evenly spaced blocks of a file that are verified when it is opened, and the length of one."""

FILE = {"bytes": int, "sha256": str, "sample_sha256": str}
"""What is known of each file: its length, its SHA-256, and the SHA-256 of the parts verified when it is opened."""

RAW = 1
"""FFCV's code for images that are stored as raw pixels; 0 stands for JPEG."""

Record = dict[str, Any]


def installed() -> bool:
    """Whether FFCV, which reads and writes .beton files, is installed."""
    return find_spec("ffcv") is not None


def record_file(of: DataSet, root: Path) -> Path:
    """The path of the record of the .beton files."""
    return prepared_file(of, root).with_suffix(".beton.json")


def prepare(
    of: DataSet, root: Path, origin: Mapping[str, Any], content: Mapping[str, str], splits: Mapping[str, Split]
) -> Record:
    """Pack the images of the splits `train` and `val`; complete files of an earlier attempt are kept.

    `content` holds the SHA-256 of the images' origin. Returns the record: `origin`, `content`, the `settings`, what is
    known of every file (see FILE), and `sha256`, the SHA-256 of the output of `sha256sum` for the files. Raises
    ValueError for a damaged image.
    """
    require_writable(of, root)
    made_from = {**content, "settings": _packing(of).model_dump(mode="json")}
    files = {}
    for split, images in splits.items():
        for first in range(0, len(images.labels), IMAGES_IN_A_FILE):
            indices = range(first, min(first + IMAGES_IN_A_FILE, len(images.labels)))
            file = _folder(of, root) / f"{split}-{first // IMAGES_IN_A_FILE:03d}.beton"
            files[file.name] = _pack_file(of, images, indices, file, made_from)
    record = {
        "name": of.name,
        **{name: origin[name] for name in ("variant", "source")},
        **made_from,
        "sha256": _sha256(files),
        **counts(of),
        "versions": origin["versions"] | {"ffcv": version("ffcv")},
        "files": files,
    }
    write_text(record_file(of, root), json.dumps(record, indent=2) + "\n")
    return record


def load_record(of: DataSet, root: Path, content: Mapping[str, str] = MappingProxyType({})) -> Record | None:
    """The record of the files made from this content (see `prepare`) with the declared settings, or None.

    Raises ValueError for a damaged record.
    """
    file = record_file(of, root)
    if not file.is_file():
        return None
    record = read_record(of, file, RECORD | {"settings": dict, "files": dict})
    for name, known in record["files"].items():
        if not (re.fullmatch(r"(train|val)-\d{3,}\.beton", name) and isinstance(known, dict)):
            raise damaged(of, file, f"files: found {name}: {show(known)}, allowed: train-000.beton, ... with mappings")
        require(of, file, known, FILE, f"files.{name}.")
    if record["sha256"] != (wanted := _sha256(record["files"])):
        raise damaged(of, file, f"sha256: found {record['sha256']}, allowed: {wanted}, that of its files")
    made_from = {**content, "settings": _packing(of).model_dump(mode="json")}
    return record if made_from.items() <= record.items() else None


def load(of: DataSet, root: Path, record: Mapping[str, Any]) -> dict[str, "PackedImages"]:
    """The splits `train` and `val`, after a look at the index and some blocks of every file."""
    files: dict[str, list[Path]] = {"train": [], "val": []}
    for name, known in record["files"].items():
        file = _folder(of, root) / name
        size = file.stat().st_size if file.is_file() else 0
        if size != known["bytes"]:
            raise damaged(of, file, f"found {size} bytes, allowed: {known['bytes']}", f" and {record_file(of, root)}")
        if (found := _sample(file)) != (wanted := known["sample_sha256"]):
            reason = f"SHA-256 of its ends and some blocks: found {found}, allowed: {wanted}"
            raise damaged(of, file, reason, f" and {record_file(of, root)}")
        files[name.split("-")[0]].append(file)
    return {split: PackedImages(paths) for split, paths in files.items()}


def properties(of: DataSet, root: Path, record: Mapping[str, Any]) -> list[Property]:
    """Whether no image is larger than declared, and every file is unchanged."""
    limit = record["settings"]["max_side"]
    larger = {split: str(int((images.sides > limit).sum())) for split, images in load(of, root, record).items()}
    return [
        *(Property(f"{split} images larger than {limit} pixels", number, ("0",)) for split, number in larger.items()),
        *(
            Property(f"{name} sha256", file_sha256(_folder(of, root) / name), (known["sha256"],))
            for name, known in record["files"].items()
        ),
    ]


def _sha256(files: Mapping[str, Mapping[str, Any]]) -> str:
    return sums_sha256((known["sha256"], name) for name, known in files.items())


def _sample(file: Path) -> str:
    """SHA-256 of both ends of a file and of evenly spaced blocks, which takes milliseconds for any length."""
    size, digest = file.stat().st_size, hashlib.sha256()
    starts = [(size - BLOCK_BYTES) * number // BLOCKS for number in range(1, BLOCKS)]
    parts = [(0, END_BYTES), *((start, BLOCK_BYTES) for start in starts), (size - END_BYTES, END_BYTES)]
    with file.open("rb") as stream:
        for start, length in parts:
            stream.seek(max(0, start))
            digest.update(stream.read(length))
    return digest.hexdigest()


def _folder(of: DataSet, root: Path) -> Path:
    return prepared_file(of, root).with_suffix(".beton")


def _packing(of: DataSet) -> Packing:
    assert of.preparation
    assert of.preparation.streaming
    return of.preparation.streaming


def _pack_file(of: DataSet, images: Split, indices: range, file: Path, made_from: Mapping[str, Any]) -> dict[str, Any]:
    beside = file.with_suffix(".json")
    made_from = {**made_from, "images": [indices.start, indices.stop]}
    if file.is_file() and beside.is_file():
        known = read_record(of, beside, FILE | {"made_from": dict})
        if known.pop("made_from") == made_from:
            return known
    beside.unlink(missing_ok=True)
    partial = file.with_suffix(".partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        _write(of, images, indices, partial)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
    record = {"bytes": file.stat().st_size, "sha256": file_sha256(file), "sample_sha256": _sample(file)}
    write_text(beside, json.dumps(record | {"made_from": made_from}) + "\n")
    return record


def _write(of: DataSet, images: Split, indices: range, file: Path) -> None:
    """Write one file. Raises ValueError for a damaged image, and when a process that writes has failed."""
    source = _Source(images, indices)
    # A process of its own can be ended: FFCV's writer waits indefinitely for a process of its own that has failed.
    writer = multiprocessing.get_context("fork").Process(target=_write_all, args=(_packing(of), source, file))
    writer.start()
    try:
        _wait_for(of, writer, source)
    finally:
        with suppress(ProcessLookupError):  # it and all that it has started have ended
            # Not SIGKILL: Python's resource tracker, which frees their shared memory, ignores this and ends by itself.
            os.killpg(writer.pid or 0, signal.SIGTERM)
        writer.terminate()
        writer.join()


def _wait_for(of: DataSet, writer: ForkProcess, source: "_Source") -> None:
    taken, since = source.taken.value, time.monotonic()
    while writer.is_alive():
        writer.join(POLL_SECONDS)
        if not source.errors.empty():
            raise of.error(source.errors.get())
        if source.taken.value != taken:
            taken, since = source.taken.value, time.monotonic()
        elif time.monotonic() - since > SILENT_SECONDS:
            silent = f"FFCV's writer has taken no image for {SILENT_SECONDS} seconds"
            raise of.error(f"{silent}: one of its processes failed, see above")
    if writer.exitcode:
        raise of.error("FFCV's writer failed, see above")


def _write_all(settings: Packing, source: "_Source", file: Path) -> None:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(signal.SIGTERM)

    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    image = RGBImageField(
        write_mode="proportion",
        max_resolution=settings.max_side,
        compress_probability=settings.jpeg_share,
        jpeg_quality=settings.jpeg_quality,
    )
    processes = min(len(os.sched_getaffinity(0)), 1 + len(source) // IMAGES_OF_A_PROCESS)
    writer = DatasetWriter(str(file), {"image": image, "label": IntField()}, num_workers=processes)
    writer.from_indexed_dataset(source)
    with file.open("rb+") as written:
        os.fsync(written.fileno())


class _Source:
    """The images and labels for FFCV's writing processes."""

    def __init__(self, images: Split, indices: range) -> None:
        self.images, self.indices = images, indices
        self.errors: SimpleQueue[str] = SimpleQueue()
        # Without a lock, which a killed process would never release.
        self.taken = RawValue("q", -1)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> tuple[Pixels, int]:
        number = self.taken.value = self.indices[index]
        try:
            return self.images.pixels(number), int(self.images.labels[number])
        except Exception as error:  # this process, one of FFCV's, would end without a word
            self.errors.put(str(error) or type(error).__name__)
            raise


class PackedImages:
    """The images of one split in .beton files, which stay on disk and in the operating system's cache.

    FFCV's reader and JPEG decoder are used, but not its loader: its crops come from one random generator per process,
    so that they would depend on the number of processes and on interruptions.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        from ffcv.reader import Reader

        readers = [Reader(str(file)) for file in files]
        self.labels: NDArray[np.int64] = np.concatenate([reader.metadata["f1"].reshape(-1) for reader in readers])
        self._images = np.concatenate([reader.metadata["f0"].reshape(-1) for reader in readers])
        self._ends = np.cumsum([len(reader.metadata) for reader in readers])
        # Copy on write, so that raw pixels can be handed out as they lie in the file.
        self._memory = [np.memmap(file, mode="c") for file in files]
        self._lengths = np.concatenate([_lengths(reader.metadata["f0"], reader.alloc_table) for reader in readers])

    @property
    def sides(self) -> NDArray[np.int64]:
        """The longer side of every image, [N]."""
        return np.maximum(self._images["height"], self._images["width"]).astype(np.int64)

    def pixels(self, index: int) -> Pixels:
        """The pixels of an image, uint8 [height, width, 3]."""
        from ffcv.libffcv import imdecode

        image, file = self._images[index], int(np.searchsorted(self._ends, index, "right"))
        height, width, start = int(image["height"]), int(image["width"]), int(image["data_ptr"])
        stored = np.asarray(self._memory[file][start : start + int(self._lengths[index])])
        if image["mode"] == RAW:
            return stored.reshape(height, width, 3)
        decoded = np.empty((height, width, 3), dtype=np.uint8)
        imdecode(stored, decoded, height, width, height, width, 0, 0, 1, 1, False, False)
        return decoded


def _lengths(images: NDArray[Any], allocated: NDArray[Any]) -> NDArray[np.int64]:
    by_place = allocated[np.argsort(allocated["ptr"])]
    entries = by_place[np.searchsorted(by_place["ptr"], images["data_ptr"].reshape(-1))]
    return entries["size"].astype(np.int64)
