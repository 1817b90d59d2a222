"""Data sets that fit in memory, and the batches that each worker draws from them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from resync.tasks.data.pixels import Pixels
from resync.tasks.data.sampling import Sampler, statistics_draws


@dataclass(frozen=True)
class InMemory:
    """Training and validation samples.

    Inputs are [N, *input_shape], targets int64 [N]. Inputs are float32, or uint8 images that `pixels` converts to
    float32 batch by batch. `variant` names exactly these samples, `sha256` is that of the file that holds them.
    """

    train_inputs: Tensor
    train_targets: Tensor
    val_inputs: Tensor
    val_targets: Tensor
    variant: str
    sha256: str
    pixels: Pixels | None = None
    verified: str = "all"

    @property
    def num_train(self) -> int:
        return len(self.train_targets)

    @property
    def train_labels(self) -> NDArray[np.int64]:
        return self.train_targets.cpu().numpy()

    def to(self, device: torch.device) -> "InMemory":
        tensors = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **tensors, pixels=self.pixels.to(device) if self.pixels else None)

    def batches(self, sampler: Sampler, epoch: int, first_step: int, workers: slice) -> Iterator[tuple[Tensor, Tensor]]:
        device = self.train_targets.device
        indices = torch.from_numpy(sampler.epoch(epoch)[first_step:, workers]).to(device)
        if self.pixels:
            draws = torch.from_numpy(sampler.draws(epoch, workers, self._num_draws)[first_step:]).to(device)
        # An epoch's targets are few bytes, and one operation takes about as long as that of a step.
        for number, (index, targets) in enumerate(zip(indices, self.train_targets[indices], strict=True)):
            if (size := sampler.size_of(first_step + number)) is not None:
                index, targets = index[:, :size], targets[:, :size]
            inputs = self.train_inputs.index_select(0, index.flatten())
            if self.pixels:
                inputs = self.pixels.augment(inputs, draws[number, :, :size].flatten())
            yield inputs.view(*index.shape, *inputs.shape[1:]), targets

    def validation(self, rank: int, world_size: int, batch_size: int = 512) -> Iterator[tuple[Tensor, Tensor]]:
        inputs, targets = self.val_inputs[rank::world_size], self.val_targets[rank::world_size]
        for batch, labels in zip(inputs.split(batch_size), targets.split(batch_size), strict=True):
            yield self.pixels.normalise(batch) if self.pixels else batch, labels

    def statistics_batch(self, seed: int, epoch: int, index: int, batch_size: int) -> tuple[Tensor, Tensor]:
        drawn = statistics_draws(seed, epoch, index, batch_size, (self.num_train, self._num_draws))
        chosen, draws = (torch.from_numpy(array).to(self.train_inputs.device) for array in drawn)
        return self._training_inputs(chosen, draws), self.train_targets[chosen]

    def close(self) -> None:
        """Nothing: there are no processes."""

    @property
    def _num_draws(self) -> int:
        return self.pixels.num_draws if self.pixels else 1

    def _training_inputs(self, index: Tensor, draws: Tensor) -> Tensor:
        """The training samples [n] of this index, augmented according to `draws` [n]."""
        samples = self.train_inputs.index_select(0, index)
        return self.pixels.augment(samples, draws) if self.pixels else samples
