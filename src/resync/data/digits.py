"""Handwritten digits of scikit-learn: real images that need no download."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from resync.data.memory import InMemory
from resync.streams import stream

VAL_SAMPLES = 360


def build() -> InMemory:
    """1,437 training and 360 validation images [1, 8, 8], scaled to mean 0 and deviation 1 of the training images.

    The split is one fixed permutation, the same for every run and seed.
    """
    table = np.loadtxt(_file(), delimiter=",", dtype=np.float32)
    table = table[stream(0, "digits-split").permutation(len(table))]
    inputs = torch.from_numpy(table[:, :-1].copy()).reshape(-1, 1, 8, 8)
    targets = torch.from_numpy(table[:, -1].astype(np.int64))
    train = inputs[VAL_SAMPLES:]
    inputs = (inputs - train.mean()) / train.std()
    return InMemory(inputs[VAL_SAMPLES:], targets[VAL_SAMPLES:], inputs[:VAL_SAMPLES], targets[:VAL_SAMPLES])


def _file() -> Path:
    """The CSV inside the package: importing scikit-learn for it would take longer than a smoke run trains."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ValueError("data digits: scikit-learn, which brings the images, is not installed")
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
