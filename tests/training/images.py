"""A tiny data set of images, and every layout in which people keep such sets."""

import hashlib
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from torchvision.datasets import CIFAR10

from resync.tasks.data_sets.declaration import DataSet, data_set
from resync.tasks.prepare.prepared_file import Images

CLASSES = "ant", "bee", "cat"
PER_CLASS = {"train": [1, 2, 3], "test": [1, 1, 1]}


def declare(folder: Path, sources: list[dict[str, Any]], **changes: Any) -> DataSet:
    """A data set of 32x32 colour images in three classes, declared in a package of its own."""
    prepare = {"sources": sources, "train_per_class": PER_CLASS["train"], "val_per_class": 1}
    facts = {"train_samples": 6, "val_samples": 3, "num_classes": 3, "input_shape": [3, 32, 32]}
    prepare |= {key: value for key, value in changes.items() if key not in facts}
    facts |= {key: value for key, value in changes.items() if key in facts}
    channels = facts["input_shape"][0]
    reader = {
        "kind": "stream" if "streaming" in changes else "memory",
        "mean": [0.5] * channels,
        "std": [0.25] * channels,
    }
    file = folder / "package/tasks/data/tiny.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump({"description": "tiny", "reader": reader, "facts": facts, "prepare": prepare}))
    return data_set("tiny", folder / "package")


def images(shape: tuple[int, int, int] = (3, 32, 32)) -> Images:
    """Random pixels; the images of a class after each other, as readers order them."""
    generator = np.random.default_rng(0)
    labels = {split: np.repeat(np.arange(3, dtype=np.uint8), counts) for split, counts in PER_CLASS.items()}
    pixels = {split: generator.integers(256, size=(len(labels[split]), *shape), dtype=np.uint8) for split in labels}
    return {
        "train_images": pixels["train"], "train_labels": labels["train"],
        "val_images": pixels["test"], "val_labels": labels["test"],
    }  # fmt: skip


def splits(of: Images) -> list[tuple[str, np.ndarray, np.ndarray]]:
    return [("train", of["train_images"], of["train_labels"]), ("test", of["val_images"], of["val_labels"])]


def write_files(folder: Path, of: Images) -> None:
    """train/<class>/<number>.png and test/<class>/<number>.png, and a file that is not part of the data."""
    for split, pixels, labels in splits(of):
        for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
            file = folder / split / CLASSES[label] / f"{number:04d}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.transpose(1, 2, 0).squeeze()).save(file)
    (folder / "LICENSE").write_text("free")


def write_archive(folder: Path, of: Images) -> Path:
    """The same in <folder>/<folder>.tar.gz."""
    write_files(folder / "unpacked", of)
    archive = folder / f"{folder.name}.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        for each in sorted((folder / "unpacked").iterdir()):
            file.add(each, each.name)
    (folder / "unpacked").rename(folder.parent / "moved")
    return archive


def write_cifar10(folder: Path, of: Images, patch: pytest.MonkeyPatch) -> None:
    """The files of CIFAR-10's archive, and their checksums where torchvision keeps those of the real ones."""
    (train, test) = (
        {"data": pixels.reshape(len(pixels), -1), "labels": labels.tolist()} for _, pixels, labels in splits(of)
    )
    checksums = {}
    contents = {"data_batch_1": train, "test_batch": test, "batches.meta": {"label_names": list(CLASSES)}}
    folder.mkdir(parents=True)
    for name, content in contents.items():
        written = pickle.dumps(content)
        (folder / name).write_bytes(written)
        checksums[name] = hashlib.md5(written).hexdigest()
    patch.setattr(CIFAR10, "train_list", [["data_batch_1", checksums["data_batch_1"]]])
    patch.setattr(CIFAR10, "test_list", [["test_batch", checksums["test_batch"]]])
    patch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": checksums["batches.meta"]})


def write_mnist(folder: Path, of: Images) -> None:
    """MNIST's four files of grey images."""
    folder.mkdir(parents=True)
    for (_, pixels, labels), prefix in zip(splits(of), ("train", "t10k"), strict=True):
        header = struct.pack(">4i", 0x803, len(pixels), *pixels.shape[2:])
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(header + pixels.tobytes())
        header = struct.pack(">2i", 0x801, len(labels))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())
