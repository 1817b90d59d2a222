"""Small convolutional net for images of 8 to 32 pixels."""

from collections.abc import Sequence

from torch import nn

from resync.models import layers


def build(
    input_shape: tuple[int, ...],
    num_classes: int,
    widths: Sequence[int] = (8, 16),
    norm: str = "group",
    groups: int = 4,
) -> nn.Module:
    """Logits [batch, num_classes] for images [batch, channels, height, width].

    Raises ValueError when `groups` does not divide a width.
    """
    modules: list[nn.Module] = []
    channels = input_shape[0]
    for index, width in enumerate(widths):
        modules.append(nn.Conv2d(channels, width, 3, stride=1 if index == 0 else 2, padding=1, bias=norm == "none"))
        if norm != "none":
            modules.append(layers.norm(norm, width, groups))
        modules.append(nn.ReLU())
        channels = width
    return nn.Sequential(*modules, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))
