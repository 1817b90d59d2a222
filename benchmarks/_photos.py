"""Images of ImageNet's usual size that need no download, prepared in both formats of data sets on disk."""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray
from PIL import Image

from benchmarks.harness import Unavailable
from resync.tasks import prepare
from resync.tasks.data_sets.declaration import DataSet, data_set
from resync.tasks.prepare import beton

HEIGHT, WIDTH = 375, 500
TRAIN, VAL = 256, 16
CLASSES = 2
NAME = "photos"

VARIABLES = "RESYNC_DATA", "RESYNC_PREPARED"


class Photos:
    """A data set of such images in a temporary folder, which is RESYNC_DATA between `make` and `close`.

    Photographs have amplitudes in inverse proportion to the frequency, and so do these, with random phases: as JPEGs of
    quality 90 they are as long as ImageNet's images, which decides how long decoding takes.
    """

    def __init__(self, number: int = TRAIN) -> None:
        self.folder, self.number = Path(), number
        self._before = {name: os.environ.get(name) for name in VARIABLES}

    def make(self) -> None:
        """Write and prepare the images."""
        self.folder = Path(tempfile.mkdtemp())
        os.environ["RESYNC_DATA"] = str(self.folder)
        os.environ.pop("RESYNC_PREPARED", None)
        generator = np.random.default_rng(0)
        for split, number in (("train", self.number), ("val", VAL)):
            for index in range(number):
                file = self.folder / NAME / split / f"n{index % CLASSES}" / f"{index:04d}.JPEG"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(_pixels(generator)).save(file, quality=90)
        for format in ("files", *(["beton"] if beton.installed() else [])):
            prepare.prepare(self.of, self.folder, format)

    def require(self, format: str) -> None:
        """Raise Unavailable for a format that cannot be written here."""
        if format == "beton" and not beton.installed():
            raise Unavailable("FFCV is not installed (docs/data.md)")

    @property
    def of(self) -> DataSet:
        """Its declaration, with ImageNet's constants."""
        file = self.folder / "package/tasks/data" / f"{NAME}.yaml"
        if not file.exists():
            facts = {
                "train_samples": self.number,
                "val_samples": VAL,
                "num_classes": CLASSES,
                "input_shape": [3, 224, 224],
            }
            declared = {
                "description": "Random images with the spectrum of photographs",
                "reader": {"kind": "stream", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
                "facts": facts,
                "prepare": {
                    "sources": [{"folder": NAME, "variant": NAME}],
                    "streaming": {"max_side": 500, "jpeg_share": 0.5, "jpeg_quality": 90},
                    "train_per_class": self.number // CLASSES,
                    "val_per_class": VAL // CLASSES,
                },
            }
            file.parent.mkdir(parents=True)
            file.write_text(yaml.safe_dump(declared))
        return data_set(NAME, self.folder / "package")

    @property
    def mean_bytes(self) -> float:
        """The mean length of an image file."""
        lengths = [file.stat().st_size for file in (self.folder / NAME / "train").rglob("*.JPEG")]
        return sum(lengths) / len(lengths)

    def close(self) -> None:
        """Delete the folder, if it was made, and restore the environment."""
        if self.folder != Path():
            shutil.rmtree(self.folder)
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _pixels(generator: np.random.Generator) -> NDArray[np.uint8]:
    """Random pixels [HEIGHT, WIDTH, 3] with a mean of 120 and a standard deviation of 60; the channels are similar."""
    frequencies = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None])
    frequencies[0, 0] = np.inf
    noise = generator.standard_normal((HEIGHT, WIDTH, 3))
    noise = noise.mean(2, keepdims=True) * 2 + noise * 0.3
    values = np.fft.irfft2(np.fft.rfft2(noise, axes=(0, 1)) / frequencies[..., None], (HEIGHT, WIDTH), axes=(0, 1))
    return (120 + 60 * values / values.std()).clip(0, 255).astype(np.uint8)
