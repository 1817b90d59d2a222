"""Augmentation: batched crops, flips and normalisation beside torchvision.transforms.v2, image by image.

Both in this process. On the CPU, seconds are processor time on one thread, so that other load on the machine matters
little.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torchvision.transforms import v2

from benchmarks.harness import Benchmark, Case, Measure
from resync.tasks.data.pixels import Pixels
from resync.tasks.data_sets.declaration import data_set
from resync.tasks.data_sets.readers import MemoryReader

BATCHES = 32, 128, 1024, 4096
REPEATS = 3
ONE_BY_ONE = "torchvision.transforms.v2, one by one"
READER = data_set("cifar10").reader
assert isinstance(READER, MemoryReader)
SHAPE, PADDING = (3, 32, 32), READER.crop_padding


def benchmark(smallest: bool = False) -> Benchmark:
    """A group for each device and size of a batch."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    cases = [
        case
        for device in devices
        for batch in BATCHES[: 1 if smallest else None]
        for case in of_batch(torch.device(device), batch)
    ]
    crops = Pixels.of(READER.mean, READER.std, SHAPE, PADDING).crops
    assert crops is not None
    return Benchmark(
        title="Augmentation of 32 x 32 images",
        minutes=0.5,
        measures={"images_per_second": Measure("1/s", "higher")},
        cases=cases,
        base=ONE_BY_ONE,
        code=["tasks/data"],
        notes=[f"memory of the batched form: {crops.nbytes / 2**20:.1f} MiB for the {len(crops)} crops and flips"],
        warm_up=lambda: torch.set_num_threads(1),
    )


def of_batch(device: torch.device, batch: int) -> list[Case]:
    """Both forms for batches of one size."""
    images = torch.randint(256, (batch, *SHAPE), dtype=torch.uint8, device=device)
    pixels = Pixels.of(READER.mean, READER.std, SHAPE, PADDING).to(device)
    draws = torch.randint(pixels.num_draws, (batch,), device=device)
    one = v2.Compose(
        [
            v2.RandomCrop(SHAPE[1:], padding=PADDING),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(READER.mean, READER.std),
        ]
    )
    few = images[:32]  # image by image, the rate does not depend on their number
    group = f"{device.type}, batches of {batch}"
    return [
        Case("batched", partial(rate, lambda: pixels.augment(images, draws), images), group),
        Case(ONE_BY_ONE, partial(rate, lambda: torch.stack([one(image) for image in few]), few), group),
    ]


def rate(make: Callable[[], object], images: Tensor) -> dict[str, list[float]]:
    """Images per second of some calls."""
    clock = time.process_time if images.device.type == "cpu" else time.perf_counter
    rates = []
    for _ in range(REPEATS):
        started = clock()
        make()
        if images.is_cuda:
            torch.cuda.synchronize(images.device)
        rates.append(len(images) / (clock() - started))
    return {"images_per_second": rates}
