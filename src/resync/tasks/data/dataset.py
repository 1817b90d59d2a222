"""The interface between data sets and the training loop."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from resync.tasks.data.sampling import Sampler


class Dataset(Protocol):
    """Training and validation samples, divided into batches for workers and processes."""

    @property
    def variant(self) -> str:
        """Name of exactly these samples: a different one if they differ, such as a lossy copy."""

    @property
    def sha256(self) -> str:
        """The checksum of the file that holds the samples."""

    @property
    def verified(self) -> str:
        """What of the samples was compared with `sha256` when they were opened.

        `all` of them; a `sample` of files too large for that; or the `list` of their files, with the length of each.
        """

    @property
    def num_train(self) -> int:
        """Number of training samples to draw from."""

    @property
    def train_labels(self) -> NDArray[np.int64]:
        """The class of every training sample, [num_train]; only of a classification."""

    def to(self, device: torch.device) -> "Dataset":
        """A copy that makes its batches on `device`."""

    def batches(self, sampler: Sampler, epoch: int, first_step: int, workers: slice) -> Iterator[tuple[Any, Any]]:
        """Inputs and targets of the slice's k workers, starting at `first_step` of the epoch.

        They are tensors [k, b, ...] if all samples have the same shape, else one list of forward passes per worker.
        """

    def validation(self, rank: int, world_size: int) -> Iterator[tuple[Any, Any]]:
        """Inputs and targets of one process; every validation sample is on exactly one process, once."""

    def statistics_batch(self, seed: int, epoch: int, index: int, batch_size: int) -> tuple[Any, Any]:
        """Inputs and targets of training batch number `index` for statistics of the consensus model."""

    def close(self) -> None:
        """End the processes that it has started, if any, after the last batch."""
