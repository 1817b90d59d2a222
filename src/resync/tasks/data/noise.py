"""Noise in the shape of a data set that is missing: images, characters or pairs of sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resync.tasks.data.characters import Characters
from resync.tasks.data.memory import InMemory
from resync.tasks.data.pixels import Pixels
from resync.tasks.data.text import ParallelText
from resync.tasks.prepare.text import ParallelCorpus, Sentences
from resync.tasks.prepare.vocabulary import END, Vocabulary

_HELD = 512
"""Images that are held, each in the place of many; also the images or sentences of an evaluation."""
_FIRST_WORD, _SHORTEST, _LONGEST = 4, 8, 48
"""The first id that is no mark, and the lengths of sentences, whose mean is about that of the real ones."""


@dataclass(frozen=True)
class _Images(InMemory):
    def _training_inputs(self, index: Tensor, draws: Tensor) -> Tensor:
        return super()._training_inputs(index % len(self.train_inputs), draws)


class _Numbers(Vocabulary):
    """Words that are numbers."""

    def __init__(self) -> None:
        self.model = b""

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


def build(facts_of: Mapping[str, Any], max_tokens: int | None) -> InMemory | Characters | ParallelText:
    """A data set with these facts, the same in every process."""
    rng = np.random.default_rng(0)
    match facts_of.get("task"):
        case "translation":
            assert max_tokens
            return ParallelText(_corpus(facts_of, rng), max_tokens, "noise", "noise")
        case "language_model":
            return _characters(facts_of, rng)
        case _:
            return _images(facts_of, rng)


def _images(facts: Mapping[str, Any], rng: np.random.Generator) -> InMemory:
    shape, val = facts["input_shape"], min(_HELD, facts["val_samples"])
    held = torch.from_numpy(rng.integers(256, size=(_HELD, *shape), dtype=np.uint8))
    targets = torch.from_numpy(rng.integers(facts["num_classes"], size=facts["train_samples"]))
    pixels = Pixels.of([0.5] * shape[0], [0.25] * shape[0], shape, padding=None)
    return _Images(held, targets, held[:val], targets[:val], "noise", "noise", pixels)


def _characters(facts: Mapping[str, Any], rng: np.random.Generator) -> Characters:
    context, size = facts["input_shape"][0], facts["num_classes"]
    lengths = facts["train_samples"] + context, facts["val_samples"] * context + 1
    train, val = (torch.from_numpy(rng.integers(size, size=length, dtype=np.int32)) for length in lengths)
    return Characters(train, val, "".join(map(chr, range(size))), context, "noise", "noise")


def _corpus(facts: Mapping[str, Any], rng: np.random.Generator) -> ParallelCorpus:
    numbers = {"train": facts["train_samples"], "val": _HELD, "test": _HELD}
    words = facts["num_classes"]
    source, target = ({split: _sentences(count, words, rng) for split, count in numbers.items()} for _ in range(2))
    test, vocabulary = target["test"], _Numbers()
    references = np.split(test.tokens, test.starts[1:])
    return ParallelCorpus(source, target, tuple(vocabulary.decode(ids[:-1].tolist()) for ids in references), vocabulary)


def _sentences(count: int, words: int, rng: np.random.Generator) -> Sentences:
    lengths = rng.integers(_SHORTEST, _LONGEST, size=count)
    tokens = rng.integers(_FIRST_WORD, words, size=lengths.sum(), dtype=np.uint16)
    tokens[np.cumsum(lengths) - 1] = END
    return Sentences(tokens, lengths)
