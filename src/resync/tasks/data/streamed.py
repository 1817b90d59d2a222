"""Image sets too large for memory: decoded and augmented ahead of time by processes beside the training process."""

import math
import mmap
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from resync.tasks.data.pixels import Pixels
from resync.tasks.data.rand_augment import RandAugment
from resync.tasks.data.sampling import Sampler, statistics_draws
from resync.tasks.data.transforms import TrainingTransform, Transform, validation_transform
from resync.tasks.data_sets.declaration import DataSet
from resync.tasks.data_sets.readers import RandAugmentSettings, StreamReader
from resync.tasks.prepare import Split, data_root, load_stream

SEEDS = 2**63 - 1
"""Upper limit of the random seed with which each image of an epoch is augmented."""

AHEAD = 2
"""Batches that each decoding process makes ahead of time."""


@dataclass(frozen=True)
class Streamed:
    """Training and validation images on disk, and their transforms, which give images of `shape`.

    A batch is a function of the index plan and of one seed per image, so it is the same for every number of processes
    and after an interruption. `decoders` processes beside this one decode the images of each split, from its first
    batch to the end of the training; with 0, this process does. The images travel as bytes, and are normalised on
    `device`. Two passes over a split do not overlap: the second one ends the first.
    """

    splits: Mapping[str, Split]
    transforms: Mapping[str, Transform]
    pixels: Pixels
    shape: tuple[int, int, int]
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
        return self.splits["train"].labels

    def to(self, device: torch.device) -> "Streamed":
        return replace(self, pixels=self.pixels.to(device), device=device)

    def batches(self, sampler: Sampler, epoch: int, first_step: int, workers: slice) -> Iterator[tuple[Tensor, Tensor]]:
        indices = sampler.epoch(epoch)[first_step:, workers]
        seeds = sampler.draws(epoch, workers, SEEDS)[first_step:]
        requests = np.stack([indices, seeds], axis=-1).reshape(len(indices), -1, 2)
        for inputs, targets in self._load("train", list(requests)):
            yield inputs.unflatten(0, indices.shape[1:]), targets.unflatten(0, indices.shape[1:])

    def validation(self, rank: int, world_size: int, batch_size: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
        indices = np.arange(rank, len(self.splits["val"].labels), world_size)
        requests = np.stack([indices, np.zeros_like(indices)], axis=-1)
        starts = range(0, len(requests), batch_size)
        return self._load("val", [requests[first : first + batch_size] for first in starts])

    def statistics_batch(self, seed: int, epoch: int, index: int, batch_size: int) -> tuple[Tensor, Tensor]:
        requests = np.stack(statistics_draws(seed, epoch, index, batch_size, (self.num_train, SEEDS)), axis=-1)
        # For a single batch, starting processes would take longer than decoding it here.
        seen = torch.stack([_image(self.splits["train"], self.transforms["train"], *request) for request in requests])
        return self.pixels.normalise(seen.to(self.device)), self._labels("train", requests)

    def close(self) -> None:
        for loader in self._loaders.values():
            loader.close()

    def _load(self, split: str, requests: Sequence[NDArray[np.int64]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs [n, C, H, W] and targets [n] of each batch of requests [n, 2]: index and seed of every image."""
        for number, images in enumerate(self._loaders[split].batches(requests)):
            # Copied before the loader's next batch takes its place, whenever the device reads it.
            own = images.pin_memory() if self.device.type == "cuda" else images
            inputs = self.pixels.normalise(own.to(self.device, non_blocking=True))
            yield inputs, self._labels(split, requests[number])

    def _labels(self, split: str, requests: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(self.splits[split].labels[requests[:, 0]]).to(self.device)

    @cached_property
    def _loaders(self) -> dict[str, "_Loader"]:
        return {
            split: _Loader(images, self.transforms[split], self.shape, self.decoders)
            for split, images in self.splits.items()
        }


class _Loader:
    """The images of a split, decoded by processes that live from pass to pass into memory that they share."""

    def __init__(self, split: Split, transform: Transform, shape: Sequence[int], decoders: int) -> None:
        self._split, self._transform, self._shape, self._decoders = split, transform, shape, decoders
        self._work: list[tuple[int, NDArray[np.int64]]] = []
        self._passes = 0
        self._loader: DataLoader[tuple[int, Exception | None]] | None = None
        self._places = torch.empty(0, 0)

    def batches(self, requests: Sequence[NDArray[np.int64]]) -> Iterator[Tensor]:
        """The uint8 images [n, C, H, W] of each batch of requests (see `Streamed`), until the next one is asked for."""
        self._passes = current = self._passes + 1
        largest = max(map(len, requests), default=1)
        if self._loader is None or self._places.shape[1] < largest:
            self._start(largest)
        assert self._loader is not None
        self._work[:] = [(number % len(self._places), batch) for number, batch in enumerate(requests)]
        for (place, problem), (_, batch) in zip(self._loader, self._work, strict=True):
            if problem:
                raise problem
            yield self._places[place, : len(batch)]
            if self._passes != current:
                raise RuntimeError("a pass over a split of images goes on after the next one has begun")

    def close(self) -> None:
        self._loader = None

    def _start(self, batch_size: int) -> None:
        """Make places for batches: for those asked for ahead of time, and for the one that is being used."""
        places = AHEAD * self._decoders + 1
        shape = places, batch_size, *self._shape
        # Not torch's shared memory: pages of a new file for every batch cost more than decoding half of its images.
        self._places = torch.frombuffer(mmap.mmap(-1, math.prod(shape)), dtype=torch.uint8).view(shape)
        self._loader = DataLoader(
            _Decoded(self._split, self._transform, self._places),
            sampler=self._work,
            batch_size=None,
            num_workers=self._decoders,
            prefetch_factor=AHEAD if self._decoders else None,
            persistent_workers=self._decoders > 0,
            worker_init_fn=_ignore_interrupt,
            generator=torch.Generator(),  # otherwise its unused seeds would be drawn from the default generator
        )


def _ignore_interrupt(process: int) -> None:
    """Let Ctrl-C, which the terminal sends to all, be handled by the training, which may still need its images."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(frozen=True)
class _Decoded(torch.utils.data.Dataset[tuple[int, Exception | None]]):
    """Decodes a batch of requests into one of the `places` [p, n, C, H, W].

    Returns which, and the error of an image: DataLoader would make another one of it, with the text of its traceback.
    """

    split: Split
    transform: Transform
    places: Tensor

    def __getitem__(self, work: tuple[int, NDArray[np.int64]]) -> tuple[int, Exception | None]:
        place, requests = work
        try:
            for target, request in zip(self.places[place], requests, strict=False):
                target.copy_(_image(self.split, self.transform, *request))
        except (ValueError, OSError) as error:
            return place, error
        return place, None


def _image(split: Split, transform: Transform, index: int, seed: int) -> Tensor:
    image = torch.from_numpy(split.pixels(int(index))).permute(2, 0, 1)
    # The transforms draw from torch's CPU generator; no other random numbers may depend on it.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(seed))
        return transform(image)


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
        transforms={"train": TrainingTransform(shape[-1], strong), "val": validation_transform(shape[-1])},
        pixels=Pixels.of(of.reader.mean, of.reader.std, shape, padding=None),
        shape=(shape[0], shape[1], shape[2]),
        variant=prepared.record["variant"],
        sha256=prepared.record["sha256"],
        verified=prepared.verified,
        decoders=own_cores() if decoders is None else decoders,
    )


def own_cores() -> int:
    """CPU cores of this training process: its share of the usable ones among the run's processes on this machine."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_SIZE") or 1)  # torchrun's, DeepSpeed's
    return max(1, len(os.sched_getaffinity(0)) // processes)
