"""Data sets that fit in memory, and the batches that each worker draws from them."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from resync.data.sampling import Sampler
from resync.streams import stream


@dataclass(frozen=True)
class InMemory:
    """Training and validation samples.

    Inputs are float32 [N, *input_shape], targets int64 [N].
    """

    train_inputs: Tensor
    train_targets: Tensor
    val_inputs: Tensor
    val_targets: Tensor

    def to(self, device: torch.device) -> "InMemory":
        """A copy with every tensor on `device`."""
        return InMemory(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))

    def batches(self, sampler: Sampler, epoch: int, first_step: int, workers: slice) -> Iterator[tuple[Tensor, Tensor]]:
        """Training batches of the chosen workers from `first_step` of the epoch on.

        Yields inputs [k, b, *input_shape] and targets [k, b] for the k workers of the slice.
        """
        indices = torch.from_numpy(sampler.epoch(epoch)[first_step:, workers]).to(self.train_targets.device)
        for index in indices:
            yield self.train_inputs[index], self.train_targets[index]

    def validation(self, rank: int, world_size: int, batch_size: int = 512) -> Iterator[tuple[Tensor, Tensor]]:
        """The validation samples of one process, every sample on exactly one process, none twice."""
        inputs, targets = self.val_inputs[rank::world_size], self.val_targets[rank::world_size]
        yield from zip(inputs.split(batch_size), targets.split(batch_size), strict=True)

    def statistics_batch(self, seed: int, epoch: int, index: int, batch_size: int) -> Tensor:
        """Inputs [batch_size, *input_shape] number `index` for re-estimating BatchNorm statistics.

        They come from a stream of their own: estimating never touches the order of training.
        """
        generator = stream(seed, "bn-statistics", worker=index, epoch=epoch)
        chosen = generator.integers(len(self.train_inputs), size=batch_size)
        return self.train_inputs[torch.from_numpy(chosen).to(self.train_inputs.device)]
