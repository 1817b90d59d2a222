"""Small convolutional net for images of 8 to 32 pixels."""

from collections.abc import Sequence

from torch import nn


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
    layers: list[nn.Module] = []
    channels = input_shape[0]
    for index, width in enumerate(widths):
        layers.append(nn.Conv2d(channels, width, 3, stride=1 if index == 0 else 2, padding=1, bias=norm == "none"))
        layers += [*_norm(norm, width, groups), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))


def _norm(norm: str, width: int, groups: int) -> list[nn.Module]:
    if norm == "none":
        return []
    if norm == "batch":
        return [nn.BatchNorm2d(width)]
    if width % groups:
        raise ValueError(f"model cnn: groups {groups} does not divide the width {width}")
    return [nn.GroupNorm(groups, width)]
