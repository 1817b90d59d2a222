"""Training images from disk at ImageNet's usual size: ours, FFCV's own loader, torchvision's reference transforms.

Images per second of processor time, over whole passes, with the time of processes and threads beside this one. What
travels to the device is bytes; a second group normalises them on the CPU, as training does where that is the device.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from benchmarks._photos import NAME, Photos
from benchmarks.harness import Benchmark, Case, Goal, Measure, Unavailable
from resync.base.processes.memory import keep_freed_memory
from resync.tasks.data import streamed
from resync.tasks.data.pixels import Pixels
from resync.tasks.data.sampling import Sampler
from resync.tasks.data_sets.readers import StreamReader
from resync.tasks.prepare.folders import prepared_file

BATCH, PASSES = 64, 2
SIDE = 224
BYTES, FLOATS = "bytes, normalised on the device", "normalised on the CPU"
FFCV, TORCHVISION = "FFCV's own loader", "torchvision: ImageFolder, PIL"

Pass = Callable[[], Iterable[object]]
"""Starts a pass over the training images in batches."""


def benchmark(smallest: bool = False) -> Benchmark:
    """A group with, and one without normalisation on the CPU."""
    photos = Photos(BATCH) if smallest else Photos()
    cases = []
    for group, normalised in ((BYTES, False), (FLOATS, True)):
        passes = {
            "image files": partial(ours, photos, "files", 0),
            ".beton files": partial(ours, photos, "beton", 0),
            ".beton files, 2 decoders": partial(ours, photos, "beton", 2),
            FFCV: partial(ffcvs, photos),
            TORCHVISION: partial(torchvisions, photos),
        }
        cases += [
            Case(name, partial(rate, photos.number, cache(partial(made, normalised))), group)
            for name, made in passes.items()
        ]
    return Benchmark(
        title="Training images from disk",
        minutes=1.5,
        measures={"images_per_second": Measure("1/s of processor time", "higher")},
        cases=cases,
        base=FFCV,
        code=["tasks/data", "tasks/prepare"],
        goals=[
            Goal(".beton files", at=1.0, beside=(FFCV,)),
            Goal(".beton files, 2 decoders", at=1.0, beside=(FFCV,)),
            Goal("image files", at=1.0, beside=(TORCHVISION,)),
        ],
        notes=[
            "500 x 375 pixels with the spectrum of photographs, JPEG of quality 90; in .beton files, half of them raw",
            "with 2 decoders, ours includes processes and shared memory; FFCV's threads need neither",
        ],
        warm_up=partial(_warm_up, photos),
        close=photos.close,
    )


def rate(number: int, make: Callable[[], Pass]) -> dict[str, float]:
    """Images per second of processor time; the first pass, which compiles and fills caches, does not count."""
    try:
        start = make()
    except ImportError as error:
        raise Unavailable(str(error)) from error
    if start not in _WARM:
        _WARM.append(start)
        _exhaust(start)
    before = _processor_seconds()
    for _ in range(PASSES):
        _exhaust(start)
    return {"images_per_second": PASSES * number / (_processor_seconds() - before)}


_WARM: list[Pass] = []
"""The passes that have been taken once."""


def ours(photos: Photos, format: str, decoders: int, normalised: bool) -> Pass:
    """Batches as a run gets them."""
    photos.require(format)
    images = streamed.read(photos.of, "standard", format, decoders)
    if not normalised:
        images = replace(images, pixels=_Bytes(**vars(images.pixels)))
    number = photos.number
    sampler = Sampler(number, num_workers=1, local_batch=BATCH, steps=number // BATCH, seed=0, replacement=False)
    epochs = count()
    return lambda: images.batches(sampler, next(epochs), 0, slice(0, 1))


def ffcvs(photos: Photos, normalised: bool) -> Pass:
    """FFCV's loader with one thread, its crops, and its normalisation."""
    import numpy as np
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

    mean, std = (255 * np.array(values) for values in _constants(photos))
    normalising = [NormalizeImage(mean, std, np.dtype("float32"))] if normalised else []
    crop = RandomResizedCropRGBImageDecoder((SIDE, SIDE))
    pipeline = [crop, RandomHorizontalFlip(), *normalising, ToTensor(), ToTorchImage()]
    file = prepared_file(photos.of, photos.folder).with_suffix(".beton") / "train-000.beton"
    loader = Loader(
        str(file), BATCH, num_workers=1, order=OrderOption.RANDOM, pipelines={"image": pipeline}, batches_ahead=1
    )
    return lambda: loader


def torchvisions(photos: Photos, normalised: bool) -> Pass:
    """What torchvision's references/classification reads with, without processes beside this one."""
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    mean, std = _constants(photos)
    floats = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)] if normalised else []
    transforms = [v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip(), v2.PILToTensor(), *floats]
    folder = ImageFolder(photos.folder / NAME / "train", v2.Compose(transforms))
    return lambda: DataLoader(folder, BATCH, shuffle=True)


@dataclass(frozen=True)
class _Bytes(Pixels):
    """Leaves the work of a device other than the CPU undone."""

    def normalise(self, images: Tensor) -> Tensor:
        """The images as they are."""
        return images


def _constants(photos: Photos) -> tuple[list[float], list[float]]:
    reader = photos.of.reader
    assert isinstance(reader, StreamReader)
    return list(reader.mean), list(reader.std)


def _warm_up(photos: Photos) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()  # as every run does; for all cases, which are measured in this process
    photos.make()


def _exhaust(start: Pass) -> None:
    for _ in start():
        pass


def _processor_seconds() -> float:
    """Of this process, its threads, and the processes that it has started with multiprocessing."""
    ticks = 0
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")
