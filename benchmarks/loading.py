"""Reading images from disk: from image files, from .beton files, and from the latter by FFCV's own loader and crops.

Images per second of processor time on one thread, of training batches of every data set that is prepared in both
formats below RESYNC_DATA.
"""

import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import torch

from benchmarks.harness import Benchmark, Case, Measure, Unavailable
from resync import data
from resync.config.data_sets import data_set
from resync.prepare import data_root
from resync.prepare.folders import prepared_file

DATA_SETS = "imagenet1k", "tiny_imagenet_20_224"
BATCH, BATCHES = 64, 4
"""A rate is that of four batches, which averages out prefetching."""

Next = Callable[[], object]
"""Makes the next batch."""


def benchmark() -> Benchmark:
    """A group for each data set."""
    makers: dict[str, Callable[[str], Next]] = {
        "image files": partial(ours, format="files"),
        ".beton files": partial(ours, format="beton"),
        "FFCV's own loader": ffcvs,
    }
    return Benchmark(
        title="Training images from disk",
        minutes=1.5,
        measures={"images_per_second": Measure("1/s of processor time", "higher")},
        cases=[
            Case(name, partial(rate, cache(make), of), group=of) for of in DATA_SETS for name, make in makers.items()
        ],
        base="image files",
        warm_up=lambda: torch.set_num_threads(1),
    )


def rate(make: Callable[[str], Next], of: str) -> dict[str, float]:
    """Images per second of processor time; the first batch, which compiles and fills caches, does not count."""
    try:
        beton_files(of)
        batch = make(of)
    except (ImportError, ValueError) as error:
        raise Unavailable(str(error)) from error
    batch()
    started = time.process_time()
    for _ in range(BATCHES):
        batch()
    return {"images_per_second": BATCHES * BATCH / (time.process_time() - started)}


def ours(of: str, format: str) -> Next:
    """The next batch of training images."""
    images = data.build(of, {"augmentation": "standard", "format": format, "decoders": 0})
    numbers = iter(range(10**9))
    return lambda: images.statistics_batch(0, 0, next(numbers), BATCH)


def ffcvs(of: str) -> Next:
    """The same with FFCV's loader, and with our normalisation, which costs neither any processor time on a GPU."""
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage

    size = data_set(of).facts["input_shape"][1:]
    pipeline = [RandomResizedCropRGBImageDecoder(size), RandomHorizontalFlip(), ToTensor(), ToTorchImage()]
    loader = Loader(
        str(beton_files(of) / "train-000.beton"),
        BATCH,
        num_workers=1,
        order=OrderOption.RANDOM,
        pipelines={"image": pipeline},
        batches_ahead=1,
    )
    pixels = data.build(of, {"augmentation": "standard", "format": "beton", "decoders": 0}).pixels

    def batches() -> Iterator[object]:
        while True:
            for images, _ in loader:
                yield pixels.normalised(images)

    made = batches()
    return lambda: next(made)


def beton_files(of: str) -> Path:
    """The folder of the data set's .beton files. Raises ValueError if it is not prepared."""
    folder = prepared_file(data_set(of), data_root(data_set(of))).with_suffix(".beton")
    if not folder.is_dir():
        raise ValueError(f"{of} is not prepared as .beton files below RESYNC_DATA")
    return folder
