"""Assignment of samples to workers: pure functions of (seed, epoch), the same for any number of processes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resync.streams import stream


@dataclass(frozen=True)
class Sampler:
    """Index plan of a run: `steps` batches of `local_batch` samples for each of `num_workers` workers per epoch.

    Without replacement, one global permutation per epoch is split over the workers, so that a sample is drawn at
    most once per epoch over all of them (Gu et al. 2023, appendix, Algorithm 1). If a paper rounds up the steps of an
    epoch, its last batch is completed from the start of the permutation, as in torch's DistributedSampler. With
    replacement, each worker draws uniformly from its own stream (Algorithm 2).

    With `shares`, the samples of every worker, a worker draws from its own share only, in an order of its own.
    """

    num_samples: int
    num_workers: int
    local_batch: int
    steps: int
    seed: int
    replacement: bool
    shares: Sequence[NDArray[np.int64]] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for an epoch with more steps than there are samples for."""
        batch = self.num_workers * self.local_batch
        needed = self.steps * batch
        if not self.replacement and needed >= self.num_samples + batch:
            raise ValueError(
                f"{self.steps} steps of {self.num_workers} x {self.local_batch} samples need {needed} samples per "
                f"epoch without replacement, the data set has {self.num_samples}"
            )

    def epoch(self, epoch: int) -> NDArray[np.int64]:
        """Sample indices of an epoch, [steps, num_workers, local_batch]."""
        if self.shares is not None:
            return np.stack([self._of_share(worker, share, epoch) for worker, share in enumerate(self.shares)], axis=1)
        if self.replacement:
            columns = [
                stream(self.seed, "order", worker=worker, epoch=epoch).integers(
                    self.num_samples, size=(self.steps, self.local_batch)
                )
                for worker in range(self.num_workers)
            ]
            return np.stack(columns, axis=1)
        order = stream(self.seed, "order", epoch=epoch).permutation(self.num_samples)
        return np.resize(order, (self.steps, self.num_workers, self.local_batch))

    def _of_share(self, worker: int, share: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        generator, shape = stream(self.seed, "order", worker=worker, epoch=epoch), (self.steps, self.local_batch)
        if self.replacement:
            return share[generator.integers(len(share), size=shape)]
        return np.resize(generator.permutation(share), shape)

    def draws(self, epoch: int, workers: slice, high: int) -> NDArray[np.int64]:
        """A random number below `high` for each sample of an epoch, [steps, k, b], which decides its augmentation.

        Every worker has its own stream.
        """
        shape = self.steps, self.local_batch
        columns = [
            stream(self.seed, "augmentation", worker=worker, epoch=epoch).integers(high, size=shape)
            for worker in range(self.num_workers)[workers]
        ]
        return np.stack(columns, axis=1)


def statistics_draws(seed: int, epoch: int, index: int, size: int, high: tuple[int, int]) -> list[NDArray[np.int64]]:
    """For batch number `index` of statistics: `size` samples below high[0], and their augmentation below high[1].

    They come from separate streams, so that estimates never affect the order or the augmentation of training.
    """
    purposes = zip(("bn-statistics", "bn-augmentation"), high, strict=True)
    return [stream(seed, purpose, worker=index, epoch=epoch).integers(limit, size=size) for purpose, limit in purposes]
