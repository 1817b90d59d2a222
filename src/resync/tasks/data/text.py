"""Parallel corpora, and the batches of sentence pairs that each worker draws from them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from resync.base.errors import UserError
from resync.base.streams import stream
from resync.tasks.data.sampling import Sampler
from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.prepare import ParallelCorpus, data_root
from resync.tasks.prepare import read as read_prepared
from resync.tasks.prepare.text import Sentences
from resync.tasks.prepare.vocabulary import BEGIN, END, PAD

Inputs = tuple[Tensor, Tensor]
"""Sources [n, S] and decoder inputs [n, T], int64, padded with PAD."""


class TokenTargets(NamedTuple):
    """Target ids of the decoder, [n, T], padded with PAD, and the average number of tokens per forward pass.

    `tokens` is the average over the worker's forward passes in the step, `tokens_of_all` that over all workers'.
    """

    ids: Tensor
    tokens: float
    tokens_of_all: float


class Untranslated(NamedTuple):
    """Sources [n, S] and their n reference translations."""

    sources: Tensor
    references: list[str]


@dataclass(frozen=True)
class ParallelText:
    """A parallel corpus in buckets of at most `max_tokens` tokens.

    A bucket goes through the model at once: pairs of similar length, as many as fit when all are padded to the longest
    sentence. To the sampler, a sample is a bucket. `variant` names exactly this text, `sha256` is that of the file that
    holds it. Raises ValueError if a single pair is larger than a bucket.
    """

    corpus: ParallelCorpus
    max_tokens: int
    variant: str
    sha256: str
    device: torch.device | str = "cpu"
    verified: str = "all"

    def __post_init__(self) -> None:
        if (longest := int(self._lengths("train").max())) > self.max_tokens:
            raise UserError(
                f"data {self.variant}: max_tokens is {self.max_tokens}, but the longest training sentence has {longest}"
            )

    @property
    def num_train(self) -> int:
        return len(self._train)

    @property
    def decode(self) -> Callable[[list[int]], str]:
        return self.corpus.vocabulary.decode

    def to(self, device: torch.device) -> "ParallelText":
        return replace(self, device=device)

    def batches(
        self, sampler: Sampler, epoch: int, first_step: int, workers: slice
    ) -> Iterator[tuple[list[list[Inputs]], list[list[TokenTargets]]]]:
        """Training batches of the chosen workers, starting at `first_step` of the epoch.

        Yields the buckets of the step and their targets for each of the k workers. Every process knows the number of
        tokens in all workers' buckets, so that gradients can be divided by it without communication.
        """
        plans = zip(sampler.whole_epoch(epoch)[first_step:], sampler.epoch(epoch)[first_step:], strict=True)
        for buckets, own_buckets in plans:
            tokens = self._train_tokens[buckets].mean(1)
            made = [[self._bucket("train", self._train[bucket]) for bucket in row] for row in own_buckets[workers]]
            inputs = [[inputs for inputs, _ in row] for row in made]
            targets = [
                [TokenTargets(ids, float(own), float(tokens.mean())) for _, ids in row]
                for row, own in zip(made, tokens[workers], strict=True)
            ]
            yield inputs, targets

    def validation(self, rank: int, world_size: int) -> Iterator[tuple[Inputs, Tensor]]:
        for bucket in self._buckets("val")[rank::world_size]:
            yield self._bucket("val", bucket)

    def test(self, rank: int, world_size: int) -> Iterator[Untranslated]:
        """The test pairs of one process; every pair is on exactly one process."""
        for bucket in self._buckets("test")[rank::world_size]:
            sources = self._fill(self.corpus.source["test"], bucket)
            yield Untranslated(sources, [self.corpus.references[index] for index in bucket])

    def statistics_batch(self, seed: int, epoch: int, index: int, batch_size: int) -> tuple[Inputs, Tensor]:
        """Inputs and targets of bucket number `index` of training pairs for statistics, from a separate stream."""
        chosen = stream(seed, "bn-statistics", worker=index, epoch=epoch).integers(len(self._train))
        return self._bucket("train", self._train[chosen])

    def close(self) -> None:
        """Nothing: there are no processes."""

    @cached_property
    def _train(self) -> list[NDArray[np.int64]]:
        return self._buckets("train")

    @cached_property
    def _train_tokens(self) -> NDArray[np.int64]:
        return np.array([self.corpus.target["train"].lengths[bucket].sum() for bucket in self._train])

    def _lengths(self, split: str) -> NDArray[np.int64]:
        return np.maximum(self.corpus.source[split].lengths, self.corpus.target[split].lengths)

    def _buckets(self, split: str) -> list[NDArray[np.int64]]:
        """The pairs of every bucket: sorted by length, then split; equal lengths are in a fixed random order."""
        lengths = self._lengths(split)
        order = stream(0, "buckets").permutation(len(lengths))
        order = order[np.argsort(lengths[order], kind="stable")]
        cuts, first = [], 0
        for number, length in enumerate(lengths[order].tolist()):
            if number > first and (number - first + 1) * length > self.max_tokens:
                cuts.append(number)
                first = number
        return np.split(order, cuts)

    def _bucket(self, split: str, pairs: NDArray[np.int64]) -> tuple[Inputs, Tensor]:
        """Inputs and targets of these pairs: the decoder sees BEGIN and all but the last token."""
        source, target = (self._fill(side[split], pairs) for side in (self.corpus.source, self.corpus.target))
        shifted = torch.cat([torch.full_like(target[:, :1], BEGIN), target[:, :-1]], 1)
        return (source, shifted.masked_fill_(shifted == END, PAD)), target

    def _fill(self, sentences: Sentences, chosen: NDArray[np.int64]) -> Tensor:
        """The chosen sentences [n, longest], int64 on the device."""
        lengths = sentences.lengths[chosen]
        column = np.arange(lengths.max())
        places = sentences.starts[chosen][:, None] + column
        filled = np.where(column < lengths[:, None], sentences.tokens.take(places, mode="clip"), PAD)
        return torch.from_numpy(filled.astype(np.int64)).to(self.device)


def read(of: DataSet, max_tokens: int) -> ParallelText:
    """The prepared data set `of` in buckets of `max_tokens`. Raises ValueError if it has not been prepared."""
    corpus, record = read_prepared(of, data_root(of), ParallelCorpus.from_arrays)
    return ParallelText(corpus, max_tokens, record["variant"], record["sha256"])
