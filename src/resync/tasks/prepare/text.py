"""Parallel corpora, from raw sentences to token ids: normalised, filtered and segmented with a joint vocabulary."""

import html
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.prepare.vocabulary import Vocabulary

SPLITS = ("train", "val", "test")
CHUNK = 10_000
"""Sentences to encode at a time: lists of ids take ten times the memory of an array."""

VOCABULARY_SENTENCES = 4_000_000
"""Most sentences to learn a vocabulary from, evenly spaced if there are more: sentencepiece keeps all in memory."""

Lines = tuple[list[str], list[str]]
"""The sentences of a split in the source and in the target language."""


@dataclass(frozen=True)
class Sentences:
    """Sentences as token ids: `tokens` uint16, concatenated, and their `lengths` int64 [N]."""

    tokens: NDArray[np.uint16]
    lengths: NDArray[np.int64]

    @classmethod
    def encode(cls, lines: Sequence[str], vocabulary: Vocabulary, progress: str) -> "Sentences":
        from tqdm import tqdm

        tokens, lengths = [np.empty(0, np.uint16)], [np.empty(0, np.int64)]
        for start in tqdm(range(0, len(lines), CHUNK), desc=progress, unit=f"{CHUNK} sentences", disable=None):
            encoded = vocabulary.encode(lines[start : start + CHUNK])
            tokens.append(np.fromiter(chain.from_iterable(encoded), np.uint16))
            lengths.append(np.array([len(ids) for ids in encoded]))
        return cls(np.concatenate(tokens), np.concatenate(lengths))

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Start of each sentence in `tokens`, [N]."""
        return np.cumsum(self.lengths) - self.lengths

    def keep(self, chosen: NDArray[np.bool_]) -> "Sentences":
        return Sentences(self.tokens[np.repeat(chosen, self.lengths)], self.lengths[chosen])


@dataclass(frozen=True)
class ParallelCorpus:
    """A parallel corpus: the sentences of every split by language, the raw target sentences of `test`, the vocabulary.

    `source` and `target` have the keys of SPLITS; sentence i of one is the translation of sentence i of the other.
    """

    source: Mapping[str, Sentences]
    target: Mapping[str, Sentences]
    references: tuple[str, ...]
    vocabulary: Vocabulary

    @property
    def train_counts(self) -> dict[str, int]:
        """Size of the filtered training text; ends of sentences count as tokens."""
        source, target = self.source["train"], self.target["train"]
        tokens = {"train_source_tokens": len(source.tokens), "train_target_tokens": len(target.tokens)}
        return {"train_pairs": len(source.lengths)} | tokens

    def arrays(self) -> dict[str, NDArray[Any]]:
        result: dict[str, NDArray[Any]] = {}
        for side, splits in (("source", self.source), ("target", self.target)):
            for split, sentences in splits.items():
                result[f"{side}_{split}_tokens"] = sentences.tokens
                result[f"{side}_{split}_lengths"] = sentences.lengths
        texts = {"references": "\n".join(self.references).encode(), "model": self.vocabulary.model}
        return result | {name: np.frombuffer(text, np.uint8) for name, text in texts.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "ParallelCorpus":
        source, target = (
            {
                split: Sentences(*(arrays[f"{side}_{split}_{name}"] for name in ("tokens", "lengths")))
                for split in SPLITS
            }
            for side in ("source", "target")
        )
        references = arrays["references"].tobytes().decode().split("\n")
        return cls(source, target, tuple(references), Vocabulary(arrays["model"].tobytes()))


def encode(of: DataSet, lines: Mapping[str, Lines], max_ratio: float | None = None) -> ParallelCorpus:
    """The corpus of the normalised lines of every split, with a vocabulary learned from the training pairs.

    Training pairs with an empty side are left out; with `max_ratio`, also those with a sentence that is too long or
    more than `max_ratio` times as long as the other. Raises ValueError for any other sentence that is too long.
    """
    pairs = {split: list(zip(*sides, strict=True)) for split, sides in lines.items()}
    pairs["train"] = [pair for pair in pairs["train"] if all(pair)]
    every = -(-2 * len(pairs["train"]) // VOCABULARY_SENTENCES)
    training = islice(chain.from_iterable(pairs["train"]), None, None, every or None)
    try:
        vocabulary = Vocabulary.train(training, of.facts["num_classes"])
    except ValueError as error:
        raise of.error(error) from error
    source, target = (
        {
            split: Sentences.encode([pair[side] for pair in of_split], vocabulary, f"{of.name} {split} {language}")
            for split, of_split in pairs.items()
        }
        for side, language in enumerate(("source", "target"))
    )
    if max_ratio is not None:
        lengths = source["train"].lengths, target["train"].lengths
        chosen = np.maximum(*lengths) <= np.minimum(of.facts["input_shape"][0], max_ratio * np.minimum(*lengths))
        source["train"], target["train"] = source["train"].keep(chosen), target["train"].keep(chosen)
    longest = of.facts["input_shape"][0]
    for side, splits in (("source", source), ("target", target)):
        for split, sentences in splits.items():
            if (length := int(sentences.lengths.max(initial=0))) > longest:
                number = int(sentences.lengths.argmax()) + 1
                raise of.error(f"{side} sentence {number} of {split} has {length} tokens, allowed: at most {longest}")
    return ParallelCorpus(source, target, tuple(lines["test"][1]), vocabulary)


def normalise(line: str) -> str:
    """The line without HTML entities (as Moses writes them), in Unicode normalisation form C, with single spaces."""
    return " ".join(unicodedata.normalize("NFC", html.unescape(line)).split())
