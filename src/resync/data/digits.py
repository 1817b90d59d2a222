"""Handwritten digits of scikit-learn: real images that need no download."""

import torch
from sklearn.datasets import load_digits

from resync.data.memory import InMemory
from resync.streams import stream

VAL_SAMPLES = 360


def build() -> InMemory:
    """1,437 training and 360 validation images [1, 8, 8], scaled to mean 0 and deviation 1 of the training images.

    The split is one fixed permutation, the same for every run and seed.
    """
    images, labels = load_digits(return_X_y=True)
    order = stream(0, "digits-split").permutation(len(labels))
    inputs = torch.tensor(images[order], dtype=torch.float32).reshape(-1, 1, 8, 8)
    targets = torch.tensor(labels[order], dtype=torch.int64)
    train = inputs[VAL_SAMPLES:]
    inputs = (inputs - train.mean()) / train.std()
    return InMemory(inputs[VAL_SAMPLES:], targets[VAL_SAMPLES:], inputs[:VAL_SAMPLES], targets[:VAL_SAMPLES])
