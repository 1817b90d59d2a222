"""VGG for CIFAR without normalisation: SiLU, average pooling, one linear layer (Gu et al. 2023).

Simonyan, Zisserman 2015, "Very deep convolutional networks for large-scale image recognition", configurations A, B, D
and E. It is smooth everywhere, as the theory of Local SGD with label noise assumes.
"""

from collections import OrderedDict

from torch import nn

from resync.base.errors import UserError
from resync.tasks.models.options import VGG

WIDTHS = (64, 128, 256, 512, 512)
CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def build(input_shape: tuple[int, ...], num_classes: int, options: VGG) -> nn.Module:
    """Logits [batch, num_classes] for images [batch, channels, height, width]."""
    channels, height, width = input_shape
    if min(height, width) < 2 ** len(WIDTHS):
        raise UserError(f"model vgg: needs images of at least 32x32 pixels, found {height}x{width}")
    features: list[nn.Module] = []
    for outputs, convolutions in zip(WIDTHS, CONVOLUTIONS[options.depth], strict=True):
        for _ in range(convolutions):
            features += [nn.Conv2d(channels, outputs, 3, padding=1), nn.SiLU()]
            channels = outputs
        features.append(nn.AvgPool2d(2))
    model = nn.Sequential(
        OrderedDict(
            features=nn.Sequential(*features),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            classifier=nn.Linear(channels, num_classes),
        )
    )
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
            nn.init.zeros_(module.bias)
    return model
