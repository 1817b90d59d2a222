"""Assignment of samples to workers: pure functions of (seed, epoch), the same for any number of processes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resync.base.errors import UserError
from resync.base.streams import stream


@dataclass(frozen=True)
class Share:
    """Part `index` of `number` equal parts of every worker's batch: what one of its processes trains on."""

    index: int = 0
    number: int = 1

    def of(self, samples: int) -> slice:
        own = self.length(samples)
        return slice(self.index * own, (self.index + 1) * own)

    def length(self, samples: int) -> int:
        return samples // self.number


WHOLE = Share()


@dataclass(frozen=True)
class Sampler:
    """Index plan of a run: `steps` batches of `local_batch` samples for each of `num_workers` workers per epoch.

    This process trains on its `share` of each of these batches: b of the samples.

    Without replacement, one global permutation per epoch is split over the workers, so that a sample is drawn at
    most once per epoch over all of them (Gu et al. 2023, appendix, Algorithm 1). If a paper rounds up the steps of an
    epoch, its last batch is completed from the start of the permutation, as in torch's DistributedSampler, or has
    `last_batch` samples per worker, those that are left. With replacement, each worker draws uniformly from its own
    stream (Algorithm 2).

    With `of_workers`, the samples of every worker, a worker draws from its own only, in an order of its own. With
    `orders`, its samples from the start of the training on are given.
    """

    num_samples: int
    num_workers: int
    local_batch: int
    steps: int
    seed: int
    replacement: bool
    share: Share = WHOLE
    of_workers: Sequence[NDArray[np.int64]] | None = None
    orders: Sequence[NDArray[np.int64]] | None = None
    last_batch: int | None = None

    def __post_init__(self) -> None:
        batch = self.num_workers * self.local_batch
        needed = self.steps * batch
        if not self.replacement and needed >= self.num_samples + batch:
            raise UserError(
                f"{self.steps} steps of {self.num_workers} x {self.local_batch} samples need {needed} samples per "
                f"epoch without replacement, the data set has {self.num_samples}"
            )

    def epoch(self, epoch: int) -> NDArray[np.int64]:
        """Sample indices of this process's share of an epoch, [steps, num_workers, b]."""
        return self.whole_epoch(epoch)[..., self.share.of(self.local_batch)]

    def whole_epoch(self, epoch: int) -> NDArray[np.int64]:
        """Sample indices of an epoch for all processes of a worker, [steps, num_workers, local_batch]."""
        if self.orders is not None:
            taken = self.steps * self.local_batch
            parts = [order[epoch * taken : (epoch + 1) * taken] for order in self.orders]
            return np.stack([part.reshape(self.steps, self.local_batch) for part in parts], axis=1)
        if self.of_workers is not None:
            return np.stack([self._from(own, worker, epoch) for worker, own in enumerate(self.of_workers)], axis=1)
        if self.replacement:
            columns = [
                stream(self.seed, "order", worker=worker, epoch=epoch).integers(
                    self.num_samples, size=(self.steps, self.local_batch)
                )
                for worker in range(self.num_workers)
            ]
            return np.stack(columns, axis=1)
        order = stream(self.seed, "order", epoch=epoch).permutation(self.num_samples)
        plan = np.resize(order, (self.steps, self.num_workers, self.local_batch))
        if self.last_batch:
            left = order[(self.steps - 1) * plan[0].size :]
            plan[-1, :, : self.last_batch] = left.reshape(self.num_workers, self.last_batch)
        return plan

    def size_of(self, step: int) -> int | None:
        """Samples of this process's share in a step of an epoch: None for all that `epoch` has."""
        return self.last_batch if step == self.steps - 1 else None

    def _from(self, own: NDArray[np.int64], worker: int, epoch: int) -> NDArray[np.int64]:
        generator, shape = stream(self.seed, "order", worker=worker, epoch=epoch), (self.steps, self.local_batch)
        if self.replacement:
            return own[generator.integers(len(own), size=shape)]
        return np.resize(generator.permutation(own), shape)

    def draws(self, epoch: int, workers: slice, high: int) -> NDArray[np.int64]:
        """A random number below `high` for each sample of `epoch`, [steps, k, b], which decides its augmentation."""
        shape, chosen = (self.steps, self.local_batch), range(self.num_workers)[workers]
        if high == 1:  # nothing to draw, which would take longer than the steps of an epoch of small nets
            return np.zeros((self.steps, len(chosen), self.share.length(self.local_batch)), dtype=np.int64)
        columns = [
            stream(self.seed, "augmentation", worker=worker, epoch=epoch).integers(high, size=shape)
            for worker in chosen
        ]
        return np.stack(columns, axis=1)[..., self.share.of(self.local_batch)]


def statistics_draws(seed: int, epoch: int, index: int, size: int, high: tuple[int, int]) -> list[NDArray[np.int64]]:
    """For batch number `index` of statistics: `size` samples below high[0], and their augmentation below high[1].

    They come from separate streams, so that estimates never affect the order or the augmentation of training.
    """
    purposes = zip(("bn-statistics", "bn-augmentation"), high, strict=True)
    return [stream(seed, purpose, worker=index, epoch=epoch).integers(limit, size=size) for purpose, limit in purposes]
