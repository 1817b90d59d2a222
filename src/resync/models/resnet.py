"""ResNets of torchvision."""

import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck


def build(
    input_shape: tuple[int, ...],
    num_classes: int,
    depth: int,
    stem: str = "imagenet",
    zero_last_gamma: bool = False,
    fc_std: float | None = None,
) -> nn.Module:
    """Logits [batch, num_classes] for images [batch, 3, height, width].

    Raises ValueError for images without three channels.
    """
    if input_shape[0] != 3:
        raise ValueError(f"model resnet: needs images of 3 channels, found {input_shape[0]}")
    model = getattr(torchvision.models, f"resnet{depth}")(num_classes=num_classes)
    if stem == "cifar":
        model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = nn.Identity()
    if zero_last_gamma:
        for block in model.modules():
            if isinstance(block, Bottleneck):
                nn.init.zeros_(block.bn3.weight)
            elif isinstance(block, BasicBlock):
                nn.init.zeros_(block.bn2.weight)
    if fc_std is not None:
        nn.init.normal_(model.fc.weight, std=fc_std)
    return model
