"""ResNets for CIFAR: 6n+2 layers in three stages, with parameter-free shortcuts.

He, Zhang, Ren, Sun 2016, "Deep residual learning for image recognition", section 4.2, option A. Gu et al. 2023, "Why
(and When) Does Local SGD Generalize Better than SGD?", train them with BatchNorm and ReLU, and with GroupNorm and SiLU.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from resync.tasks.models import layers
from resync.tasks.models.options import CifarResNet


class Block(nn.Module):
    """Two 3x3 convolutions with a shortcut, [batch, inputs, h, w] to [batch, width, h / stride, w / stride].

    If the block is wider than its input, the shortcut's new channels are zeros, half of them on either side. Like every
    layer, it keeps to one worker's channels where those of several workers lie side by side.
    """

    def __init__(
        self,
        inputs: int,
        width: int,
        stride: int,
        norm: Callable[[int], nn.Module],
        activation: Callable[[], nn.Module],
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = norm(width)
        self.activation = activation()
        self.stride = stride
        self.inputs = inputs
        self.new_channels = width - inputs

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.activation(self.norm1(self.conv1(images)))
        return self.activation(self.norm2(self.conv2(hidden)) + self._shortcut(images))

    def _shortcut(self, images: Tensor) -> Tensor:
        if not self.new_channels:
            return images
        before = self.new_channels // 2
        of_workers = images[:, :, :: self.stride, :: self.stride].unflatten(1, (-1, self.inputs))
        return F.pad(of_workers, (0, 0, 0, 0, before, self.new_channels - before)).flatten(1, 2)


def build(input_shape: tuple[int, ...], num_classes: int, options: CifarResNet) -> nn.Module:
    """Logits [batch, num_classes] for images [batch, channels, height, width]."""
    width, new_norm = options.width, partial(layers.norm, options.norm, groups=options.groups)
    new_activation = layers.ACTIVATIONS[options.activation]
    num_blocks = (options.depth - 2) // 6

    def stage(inputs: int, outputs: int, stride: int) -> nn.Module:
        first = Block(inputs, outputs, stride, new_norm, new_activation)
        rest = (Block(outputs, outputs, 1, new_norm, new_activation) for _ in range(num_blocks - 1))
        return nn.Sequential(first, *rest)

    model = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(input_shape[0], width, 3, padding=1, bias=False),
            norm1=new_norm(width),
            activation=new_activation(),
            layer1=stage(width, width, 1),
            layer2=stage(width, 2 * width, 2),
            layer3=stage(2 * width, 4 * width, 2),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            linear=nn.Linear(4 * width, num_classes),
        )
    )
    _initialize(model)
    return model


def _initialize(model: nn.Module) -> None:
    """Initial weights of Gu et al. 2023; norms start as the identity, which is torch's default."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
            nn.init.zeros_(module.bias)
