"""ResNets of torchvision."""

import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck

from resync.base.errors import UserError
from resync.tasks.models.options import ResNet


def build(input_shape: tuple[int, ...], num_classes: int, options: ResNet) -> nn.Module:
    """Logits [batch, num_classes] for images [batch, 3, height, width]."""
    if input_shape[0] != 3:
        raise UserError(f"model resnet: needs images of 3 channels, found {input_shape[0]}")
    model = getattr(torchvision.models, f"resnet{options.depth}")(num_classes=num_classes)
    if options.stem == "cifar":
        model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = nn.Identity()
    if options.zero_last_gamma:
        for block in model.modules():
            if isinstance(block, Bottleneck):
                nn.init.zeros_(block.bn3.weight)
            elif isinstance(block, BasicBlock):
                nn.init.zeros_(block.bn2.weight)
    if options.fc_std is not None:
        nn.init.normal_(model.fc.weight, std=options.fc_std)
    return model
