"""Small convolutional network for images of 8 to 32 pixels."""

from torch import nn

from resync.tasks.models import layers
from resync.tasks.models.options import CNN


def build(input_shape: tuple[int, ...], num_classes: int, options: CNN) -> nn.Module:
    """Logits [batch, num_classes] for images [batch, channels, height, width]."""
    modules: list[nn.Module] = []
    channels = input_shape[0]
    for index, width in enumerate(options.widths):
        stride = 1 if index == 0 else 2
        modules.append(nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=options.norm == "none"))
        if options.norm != "none":
            modules.append(layers.norm(options.norm, width, options.groups))
        modules.append(nn.ReLU())
        channels = width
    return nn.Sequential(*modules, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))
