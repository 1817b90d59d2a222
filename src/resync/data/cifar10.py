"""CIFAR-10 (Krizhevsky 2009)."""

from resync.data.memory import InMemory
from resync.data.prepared import from_prepared

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""The constants of the original code of Gu et al. 2023, which many share."""


def build(augmentation: str) -> InMemory:
    """50,000 training and 10,000 validation images [3, 32, 32]. Raises ValueError where they are not prepared."""
    return from_prepared("cifar10", MEAN, STD, padding=4 if augmentation == "crop_flip" else None)
