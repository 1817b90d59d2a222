"""Handwritten digits of scikit-learn: real images that need no download."""

import hashlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from resync.data.memory import InMemory
from resync.streams import stream

VAL_SAMPLES = 360


def build() -> InMemory:
    """1,437 training and 360 validation images [1, 8, 8], standardised with mean and deviation of the training images.

    The split is a fixed permutation, the same for every run and seed.
    """
    file = _file()
    table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[stream(0, "digits-split").permutation(len(table))]
    inputs = torch.from_numpy(table[:, :-1].copy()).reshape(-1, 1, 8, 8)
    targets = torch.from_numpy(table[:, -1].astype(np.int64))
    train = inputs[VAL_SAMPLES:]
    inputs = (inputs - train.mean()) / train.std()
    return InMemory(
        train_inputs=inputs[VAL_SAMPLES:],
        train_targets=targets[VAL_SAMPLES:],
        val_inputs=inputs[:VAL_SAMPLES],
        val_targets=targets[:VAL_SAMPLES],
        variant="digits",
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
    )


def _file() -> Path:
    """The CSV file inside the package: importing scikit-learn for it would take longer than a smoke run."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ValueError("data digits: scikit-learn, which brings the images, is not installed")
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
