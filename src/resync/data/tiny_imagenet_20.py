"""The first 20 classes of Tiny ImageNet (Le and Yang 2015)."""

from resync.data.memory import InMemory
from resync.data.prepared import from_prepared

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""The usual constants of ImageNet."""


def build(augmentation: str) -> InMemory:
    """10,000 training and 1,000 validation images [3, 64, 64]. Raises ValueError where they are not prepared."""
    return from_prepared("tiny_imagenet_20", MEAN, STD, padding=8 if augmentation == "crop_flip" else None)
