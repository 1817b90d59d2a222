"""Benchmark of reading images from disk: `python benchmarks/loading.py imagenet1k`, prepared in both formats.

Prints images per second of processor time on one thread for training batches from the image files, from the .beton
files, and from the first .beton file by FFCV's own loader with its own crops; in alternating turns, the best of each.
"""

import argparse
import time
from collections.abc import Callable, Iterator

import torch
from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage

from resync import data
from resync.config.data_sets import data_set
from resync.prepare import data_root
from resync.prepare.folders import prepared_file

TURNS, BATCH = 5, 64


def ours(name: str, format: str) -> Callable[[], object]:
    """A function that makes the next batch of training images."""
    images = data.build(name, {"augmentation": "standard", "format": format, "decoders": 0})
    numbers = iter(range(10**9))
    return lambda: images.statistics_batch(0, 0, next(numbers), BATCH)


def ffcvs(name: str) -> Callable[[], object]:
    """The same with FFCV's loader, and with our normalisation, which costs neither any processor time on a GPU."""
    of = data_set(name)
    file = prepared_file(of, data_root(of)).with_suffix(".beton") / "train-000.beton"
    size = of.facts["input_shape"][1:]
    pipeline = [RandomResizedCropRGBImageDecoder(size), RandomHorizontalFlip(), ToTensor(), ToTorchImage()]
    loader = Loader(
        str(file), BATCH, num_workers=1, order=OrderOption.RANDOM, pipelines={"image": pipeline}, batches_ahead=1
    )

    pixels = data.build(name, {"augmentation": "standard", "format": "beton", "decoders": 0}).pixels

    def batches() -> Iterator[object]:
        while True:
            for images, _ in loader:
                yield pixels.normalised(images)

    made = batches()
    return lambda: next(made)


def rate(make: Callable[[], object]) -> float:
    """Images per second of processor time, over four batches to average out prefetching."""
    started = time.process_time()
    for _ in range(4):
        make()
    return 4 * BATCH / (time.process_time() - started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", help="a data set that is read from disk")
    name = parser.parse_args().dataset
    torch.set_num_threads(1)
    makers = {
        "image files": ours(name, "files"),
        ".beton files": ours(name, "beton"),
        "FFCV's own loader": ffcvs(name),
    }
    for make in makers.values():
        make()  # compiles, and fills caches
    best = dict.fromkeys(makers, 0.0)
    for _ in range(TURNS):
        best |= {kind: max(best[kind], rate(make)) for kind, make in makers.items()}
    for kind, found in best.items():
        print(f"{kind:>18}: {found:8,.0f} images/s, {found / best['image files']:5.2f} x image files")


if __name__ == "__main__":
    main()
