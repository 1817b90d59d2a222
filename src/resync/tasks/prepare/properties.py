"""The properties that a prepared data set must have."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.data_sets.preparation import ClassCounts
from resync.tasks.prepare.prepared_file import Images, Split
from resync.tasks.prepare.text import ParallelCorpus


@dataclass(frozen=True)
class Property:
    """One property of a data set: its name, what was found, and what is allowed."""

    name: str
    found: str
    allowed: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return self.found in self.allowed

    def __str__(self) -> str:
        wrong = "" if self.holds else f", allowed: {' or '.join(self.allowed)}"
        return f"{self.name}: {'' if self.holds else 'found '}{self.found}{wrong}"


def require_all(checked: Iterable[Property], error: Callable[[str], Exception]) -> None:
    """Raise the `error` of the first property that does not hold."""
    for item in checked:
        if not item.holds:
            raise error(str(item))


def variant(of: DataSet, record: Mapping[str, Any]) -> Property:
    """The variant of the samples, which must be that of one of the declared sources."""
    if whole := of.text or of.characters:
        return Property("variant", record["variant"], (whole.variant,))
    assert of.preparation
    allowed = tuple(of.variant_of(source.variant) for source in of.preparation.sources)
    return Property("variant", record["variant"], allowed)


def pairs(of: DataSet, counts: Mapping[str, int]) -> list[Property]:
    """The numbers of pairs by split, which must be those of the declaration."""
    return [
        Property(f"{split} pairs", str(count), (str(of.facts[f"{split}_samples"]),)) for split, count in counts.items()
    ]


def text_properties(of: DataSet, text: ParallelCorpus, record: Mapping[str, Any]) -> list[Property]:
    """The declared properties of a text; those of its training pairs, which are filtered, are in the record."""
    longest = max(sentences.lengths.max() for side in (text.source, text.target) for sentences in side.values())
    allowed = of.facts["input_shape"][0]
    return [
        *pairs(of, {split: len(text.source[split].lengths) for split in ("val", "test")}),
        *(
            Property(name.replace("_", " "), str(count), (str(record.get(name)),))
            for name, count in text.train_counts.items()
        ),
        Property("vocabulary", str(len(text.vocabulary)), (str(of.facts["num_classes"]),)),
        Property("longest sentence", str(longest), (str(min(longest, allowed)),)),
    ]


def properties(of: DataSet, images: Images) -> list[Property]:
    """The declared properties of images: counts, sizes, classes and images per class."""
    shape = _join("x", of.facts["input_shape"])
    result = []
    for split in ("train", "val"):
        size = _join("x", images[f"{split}_images"].shape[1:])
        result += _class_properties(of, split, images[f"{split}_labels"])
        result.append(Property(f"{split} image size", size, (shape,)))
    return result


def split_properties(of: DataSet, splits: Mapping[str, Split]) -> list[Property]:
    """The declared properties of images that stay on disk: counts, classes and images per class."""
    return [item for name, split in splits.items() for item in _class_properties(of, name, split.labels)]


def _class_properties(of: DataSet, split: str, labels: NDArray[np.integer[Any]]) -> list[Property]:
    assert of.preparation
    counts = of.preparation.train_per_class if split == "train" else of.preparation.val_per_class
    classes = of.facts["num_classes"]
    sizes = np.bincount(labels, minlength=classes).tolist()
    if isinstance(counts, ClassCounts):
        per_class, wanted = f"{min(sizes)} to {max(sizes)}", f"{counts.fewest} to {counts.most}"
    else:
        per_class = _join(" ", sizes)
        wanted = _join(" ", [counts] * classes if isinstance(counts, int) else counts)
    return [
        Property(f"{split} images", str(len(labels)), (str(of.facts[f"{split}_samples"]),)),
        Property(f"{split} classes", str(np.count_nonzero(sizes)), (str(classes),)),
        Property(f"{split} images per class", per_class, (wanted,)),
    ]


def _join(separator: str, numbers: Sequence[int]) -> str:
    return separator.join(map(str, numbers))
