"""ResNets of torchvision."""

import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck


def build(input_shape: tuple[int, ...], num_classes: int, depth: int, zero_last_gamma: bool = False) -> nn.Module:
    """Logits [batch, num_classes] for images [batch, 3, height, width].

    Raises ValueError for images without three channels.
    """
    if input_shape[0] != 3:
        raise ValueError(f"model resnet: needs images of 3 channels, found {input_shape[0]}")
    model = getattr(torchvision.models, f"resnet{depth}")(num_classes=num_classes)
    if zero_last_gamma:
        for block in model.modules():
            if isinstance(block, Bottleneck):
                nn.init.zeros_(block.bn3.weight)
            elif isinstance(block, BasicBlock):
                nn.init.zeros_(block.bn2.weight)
    return model
