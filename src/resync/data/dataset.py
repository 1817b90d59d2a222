"""The interface of a data set to the training loop, wherever its samples are."""

from collections.abc import Iterator
from typing import Any, Protocol

import torch

from resync.data.sampling import Sampler


class Dataset(Protocol):
    """Training and validation samples, cut into batches for workers and processes."""

    @property
    def variant(self) -> str:
        """Names exactly these samples: another one where they differ, such as a lossy copy."""

    @property
    def sha256(self) -> str:
        """The checksum of the file that holds the samples."""

    @property
    def num_train(self) -> int:
        """How many training samples there are to draw from."""

    def to(self, device: torch.device) -> "Dataset":
        """A copy that makes its batches on `device`."""

    def batches(self, sampler: Sampler, epoch: int, first_step: int, workers: slice) -> Iterator[tuple[Any, Any]]:
        """Inputs and targets of the slice's k workers, from `first_step` of the epoch on.

        Tensors [k, b, ...] where all samples have one shape; else for every worker a list of its forward passes.
        """

    def validation(self, rank: int, world_size: int) -> Iterator[tuple[Any, Any]]:
        """Inputs and targets of one process: every validation sample is on exactly one process, once."""

    def statistics_batch(self, seed: int, epoch: int, index: int, batch_size: int) -> tuple[Any, Any]:
        """Inputs and targets of a training batch, number `index`, for statistics of the consensus model."""
