"""Twenty classes of Tiny ImageNet, read and augmented as ImageNet is."""

from resync.data.imagenet1k import MEAN, STD
from resync.data.streamed import Streamed, from_stream


def build(augmentation: str, loader: str) -> Streamed:
    """10,000 training and 1,000 validation images [3, 224, 224]. Raises ValueError where they are not prepared."""
    return from_stream("tiny_imagenet_20_224", MEAN, STD, loader, strong=augmentation == "strong")
