"""What a prepared data set has to be, property by property."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from resync.config.components import Component
from resync.prepare.store import Images, Pixels, file_sha256, load, prepared_file


@dataclass(frozen=True)
class Property:
    """One property of a data set: its name, what was found, and what is allowed."""

    name: str
    found: str
    allowed: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the data set is as it has to be here."""
        return self.found in self.allowed

    def __str__(self) -> str:
        """One line: what was found, and what is allowed where that is something else."""
        wrong = "" if self.holds else f", allowed: {' or '.join(self.allowed)}"
        return f"{self.name}: {'' if self.holds else 'found '}{self.found}{wrong}"


def check(of: Component, root: Path) -> list[Property]:
    """The properties of the prepared data set. Raises ValueError where there is none, or it cannot be read."""
    prepared = load(of, root)
    assert of.preparation
    variants = tuple(of.variant_of(source.variant) for source in of.preparation.sources)
    return [
        Property("variant", prepared.record["variant"], variants),
        *properties(of, prepared.images),
        Property("sha256", file_sha256(prepared_file(of, root)), (prepared.record["sha256"],)),
    ]


def properties(of: Component, images: Images) -> list[Property]:
    """What the declaration says of the images: counts, sizes, classes and how many images each one has."""
    assert of.preparation
    per_class = {"train": of.preparation.train_per_class, "val": of.preparation.val_per_class}
    shape, classes = of.facts["input_shape"], of.facts["num_classes"]
    result = []
    for split, counts in per_class.items():
        pixels: Pixels = getattr(images, f"{split}_images")
        labels: Pixels = getattr(images, f"{split}_labels")
        found = np.bincount(labels, minlength=classes).tolist()
        wanted = [counts] * classes if isinstance(counts, int) else counts
        result += [
            Property(f"{split} images", str(len(pixels)), (str(of.facts[f"{split}_samples"]),)),
            Property(f"{split} image size", _joined("x", pixels.shape[1:]), (_joined("x", shape),)),
            Property(f"{split} classes", str(np.count_nonzero(found)), (str(classes),)),
            Property(f"{split} images per class", _joined(" ", found), (_joined(" ", wanted),)),
        ]
    return result


def _joined(separator: str, numbers: Sequence[int]) -> str:
    return separator.join(map(str, numbers))
