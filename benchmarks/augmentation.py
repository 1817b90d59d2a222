"""Benchmark of augmentation: `python benchmarks/augmentation.py`.

Prints images per second for the batched crops, flips and normalisation of `resync.data.pixels`, and for the same with
torchvision.transforms.v2 image by image, as in a data loader; both in this process, in alternating turns, with the best
turn of each. On the CPU, seconds are processor time on one thread, so that other load on the machine matters little.
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor
from torchvision.transforms import v2

from resync.config.data_sets import data_set
from resync.config.readers import MemoryReader
from resync.data.pixels import Pixels

TURNS = 7
READER = data_set("cifar10").reader
assert isinstance(READER, MemoryReader)
SHAPE, PADDING = (3, 32, 32), READER.crop_padding
BATCHES = 32, 128, 1024, 4096


def compare(images: Tensor) -> tuple[float, float]:
    """Images per second, batched and image by image."""
    pixels = Pixels.of(READER.mean, READER.std, SHAPE, PADDING).to(images.device)
    draws = torch.randint(pixels.num_draws, (len(images),), device=images.device)
    one = v2.Compose(
        [
            v2.RandomCrop(SHAPE[1:], padding=PADDING),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(READER.mean, READER.std),
        ]
    )
    few = images[:32]  # image by image, the rate does not depend on their number
    turns = [
        (
            seconds(lambda: pixels.augmented(images, draws), images.device),
            seconds(lambda: torch.stack([one(image) for image in few]), images.device),
        )
        for _ in range(TURNS)
    ]
    batched, one_by_one = map(min, zip(*turns, strict=True))
    return len(images) / batched, len(few) / one_by_one


def seconds(function: Callable[[], object], device: torch.device) -> float:
    """Duration of one call."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    started = clock()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - started


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    devices = [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]
    for device in devices:
        print(f"{'device':>6} {'batch':>6} {'batched, images/s':>18} {'v2 one by one':>14} {'ratio':>6}")
        for batch in BATCHES:
            images = torch.randint(256, (batch, *SHAPE), dtype=torch.uint8, device=device)
            ours, theirs = compare(images)
            print(f"{device.type:>6} {batch:>6} {ours:>18,.0f} {theirs:>14,.0f} {ours / theirs:>6.1f}")
    crops = Pixels.of(READER.mean, READER.std, SHAPE, PADDING).crops
    assert crops is not None
    print(f"memory: 1 byte per stored value, and {crops.nbytes / 2**20:.1f} MiB for the {len(crops)} crops and flips")


if __name__ == "__main__":
    main()
