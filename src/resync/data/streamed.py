"""Image sets too large for memory: decoded and augmented ahead of time by processes beside the training process."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from resync.config.data_sets import DataSet
from resync.config.readers import RandAugmentSettings, StreamReader
from resync.data.pixels import Pixels
from resync.data.rand_augment import RandAugment
from resync.data.sampling import Sampler, statistics_draws
from resync.data.transforms import Transform, training_transform, validation_transform
from resync.prepare import Split, data_root, load_stream

SEEDS = 2**63 - 1
"""Upper limit of the random seed with which each image of an epoch is augmented."""


@dataclass(frozen=True)
class Streamed:
    """Training and validation images on disk, and their transforms.

    A batch is a function of the index plan and of one seed per image, so it is the same for every number of processes
    and after an interruption. `decoders` processes beside this one decode the images; with 0, this process does.
    """

    splits: Mapping[str, Split]
    transforms: Mapping[str, Transform]
    pixels: Pixels
    variant: str
    sha256: str
    verified: str
    decoders: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def num_train(self) -> int:
        return len(self.splits["train"].labels)

    @property
    def train_labels(self) -> NDArray[np.int64]:
        """The class of every training image."""
        return self.splits["train"].labels

    def to(self, device: torch.device) -> "Streamed":
        """A copy that makes its batches on `device`."""
        return replace(self, pixels=self.pixels.to(device), device=device)

    def batches(self, sampler: Sampler, epoch: int, first_step: int, workers: slice) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs [k, b, C, H, W] and targets [k, b] of the slice's k workers, starting at `first_step` of the epoch."""
        indices = sampler.epoch(epoch)[first_step:, workers]
        seeds = sampler.draws(epoch, workers, SEEDS)[first_step:]
        requests = np.stack([indices, seeds], axis=-1).reshape(len(indices), -1, 2)
        for inputs, targets in self._loaded("train", list(requests)):
            yield inputs.unflatten(0, indices.shape[1:]), targets.unflatten(0, indices.shape[1:])

    def validation(self, rank: int, world_size: int, batch_size: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
        """The validation images of one process; every image is on exactly one process, once."""
        indices = np.arange(rank, len(self.splits["val"].labels), world_size)
        requests = np.stack([indices, np.zeros_like(indices)], axis=-1)
        starts = range(0, len(requests), batch_size)
        return self._loaded("val", [requests[first : first + batch_size] for first in starts])

    def statistics_batch(self, seed: int, epoch: int, index: int, batch_size: int) -> tuple[Tensor, Tensor]:
        """Training inputs [batch_size, C, H, W] and targets [batch_size], number `index` of `statistics_draws`."""
        drawn = statistics_draws(seed, epoch, index, batch_size, (self.num_train, SEEDS))
        # For a single batch, starting processes would take longer than decoding it here.
        images = _Transformed(self.splits["train"], self.transforms["train"])
        seen, labels = zip(*(images[request] for request in np.stack(drawn, axis=-1)), strict=True)
        inputs = self.pixels.normalised(torch.stack(seen).to(self.device))
        return inputs, torch.tensor(labels, device=self.device)

    def _loaded(self, split: str, requests: Sequence[NDArray[np.int64]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs [n, C, H, W] and targets [n] of each batch of requests [n, 2]: index and seed of every image."""
        loader = DataLoader(
            _Transformed(self.splits[split], self.transforms[split]),
            batch_sampler=requests,
            num_workers=self.decoders,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # otherwise its unused seeds would be drawn from the default generator
        )
        for images, labels in loader:
            inputs, targets = (each.to(self.device, non_blocking=True) for each in (images, labels))
            yield self.pixels.normalised(inputs), targets


@dataclass(frozen=True)
class _Transformed(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """The transformed images of a split, by index and seed."""

    images: Split
    transform: Transform

    def __getitem__(self, request: NDArray[np.int64]) -> tuple[Tensor, int]:
        index, seed = request.tolist()
        image = torch.from_numpy(self.images.pixels(index)).permute(2, 0, 1)
        # torchvision draws from torch's CPU generator; no other random numbers may depend on it.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return self.transform(image), int(self.images.labels[index])


def read(
    of: DataSet, augmentation: str, format: str, decoders: int | None, rand_augment: RandAugmentSettings | None = None
) -> Streamed:
    """The data set `of` on disk in this format (see `load_stream`), decoded by `decoders` processes.

    None stands for `own_cores`, and for the default RandAugment of a strong augmentation. Raises ValueError if the data
    set has not been prepared in this format.
    """
    assert isinstance(of.reader, StreamReader)
    settings = rand_augment or RandAugmentSettings()
    strong = RandAugment(settings.depth, settings.severity) if augmentation == "strong" else None
    prepared = load_stream(of, data_root(of), format)
    shape = of.facts["input_shape"]
    return Streamed(
        splits=prepared.splits,
        transforms={
            "train": training_transform(shape[-1], strong),
            "val": validation_transform(shape[-1]),
        },
        pixels=Pixels.of(of.reader.mean, of.reader.std, shape, padding=None),
        variant=prepared.record["variant"],
        sha256=prepared.record["sha256"],
        verified=prepared.verified,
        decoders=own_cores() if decoders is None else decoders,
    )


def own_cores() -> int:
    """CPU cores of this training process: its share of the usable ones among the run's processes on this machine."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_SIZE") or 1)  # torchrun's, DeepSpeed's
    return max(1, len(os.sched_getaffinity(0)) // processes)
