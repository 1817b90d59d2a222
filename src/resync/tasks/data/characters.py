"""A text as characters, and the windows of it that each worker draws."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from resync.base.streams import stream
from resync.tasks.data.sampling import Sampler, statistics_draws
from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.prepare import CharacterText, data_root
from resync.tasks.prepare import read as read_prepared

Windows = tuple[Tensor, Tensor]
"""Characters [n, context] and those that follow each of them, int64 ids."""

VALIDATION_CHARACTERS = 4096
"""Number of characters in a forward pass of an evaluation."""


@dataclass(frozen=True)
class Characters:
    """Training and validation part of a text, int32 ids [N] of the characters of `alphabet`, in windows of `context`.

    To the sampler, a sample is a window: any of the N - context places of the training part at which one can start.
    `variant` names exactly this text, `sha256` is that of the file that holds it.
    """

    train: Tensor
    val: Tensor
    alphabet: str
    context: int
    variant: str
    sha256: str
    verified: str = "all"

    @classmethod
    def of(cls, text: CharacterText, context: int, variant: str, sha256: str) -> "Characters":
        train, val = (torch.from_numpy(part.astype("int32")) for part in (text.train, text.val))
        return cls(train, val, text.alphabet, context, variant, sha256)

    @property
    def num_train(self) -> int:
        return len(self.train) - self.context

    def to(self, device: torch.device) -> "Characters":
        return replace(self, train=self.train.to(device), val=self.val.to(device))

    def close(self) -> None:
        """Nothing: no process was started."""

    def batches(self, sampler: Sampler, epoch: int, first_step: int, workers: slice) -> Iterator[Windows]:
        """Training windows of the chosen workers and what follows, both [k, b, context], from `first_step` on."""
        starts = torch.from_numpy(sampler.epoch(epoch)[first_step:, workers]).to(self.train.device)
        for step in starts:
            yield self._windows(self.train, step)

    def validation(self, rank: int, world_size: int) -> Iterator[Windows]:
        """The consecutive windows of the validation part on one process; what does not fill a window is left out."""
        last = (len(self.val) - 1) // self.context * self.context
        starts = torch.arange(0, last, self.context, device=self.val.device)[rank::world_size]
        for batch in starts.split(max(1, VALIDATION_CHARACTERS // self.context)):
            yield self._windows(self.val, batch)

    def random_validation(self, seed: int, step: int, index: int, batch_size: int) -> Windows:
        """Batch number `index` of random validation windows [batch_size, context] of an evaluation after `step`."""
        draws = stream(seed, "random-validation", worker=index, epoch=step)
        starts = draws.integers(len(self.val) - self.context, size=batch_size)
        return self._windows(self.val, torch.from_numpy(starts).to(self.val.device))

    def statistics_batch(self, seed: int, epoch: int, index: int, batch_size: int) -> Windows:
        starts, _ = statistics_draws(seed, epoch, index, batch_size, (self.num_train, 1))
        return self._windows(self.train, torch.from_numpy(starts).to(self.train.device))

    def _windows(self, part: Tensor, starts: Tensor) -> Windows:
        windows = part.unfold(0, self.context + 1, 1)[starts].long()
        return windows[..., :-1], windows[..., 1:]


def read(of: DataSet, context: int) -> Characters:
    """The prepared text `of` in windows of `context`. Raises ValueError if it has not been prepared."""
    text, record = read_prepared(of, data_root(of), CharacterText.from_arrays)
    return Characters.of(text, context, record["variant"], record["sha256"])
