"""CIFAR-10 from FFCV's .beton files."""

from resync.data.cifar10 import MEAN, STD
from resync.data.memory import InMemory
from resync.data.prepared import from_prepared


def build(augmentation: str) -> InMemory:
    """50,000 training and 10,000 validation images [3, 32, 32]. Raises ValueError where they are not prepared."""
    return from_prepared("cifar10_ffcv", MEAN, STD, padding=4 if augmentation == "crop_flip" else None)
