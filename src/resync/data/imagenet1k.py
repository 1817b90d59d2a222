"""ImageNet-1k (Russakovsky et al. 2015)."""

from resync.data.streamed import Streamed, from_stream

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""The constants of torchvision's models."""


def build(augmentation: str, loader: str) -> Streamed:
    """1,281,167 training and 50,000 validation images [3, 224, 224]. Raises ValueError where they are not prepared."""
    return from_stream("imagenet1k", MEAN, STD, loader, strong=augmentation == "strong")
