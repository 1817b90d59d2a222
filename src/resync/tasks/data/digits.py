"""Handwritten digits (UCI, see digits.LICENSE): real images that need no download."""

import hashlib
from pathlib import Path

import numpy as np
import torch

from resync.base.streams import stream
from resync.tasks.data.memory import InMemory

FILE = Path(__file__).with_suffix(".csv.gz")
VAL_SAMPLES = 360
# Read once in a process, and not at all in one that is forked from it: this takes longer than to build a small model.
_TABLE = np.loadtxt(FILE, delimiter=",", dtype=np.float32)


def build() -> InMemory:
    """1,437 training and 360 validation images [1, 8, 8], standardised with mean and deviation of the training images.

    The split is a fixed permutation, the same for every run and seed.
    """
    table = _TABLE[stream(0, "digits-split").permutation(len(_TABLE))]
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
        sha256=hashlib.sha256(FILE.read_bytes()).hexdigest(),
    )
