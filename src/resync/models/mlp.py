"""Multi-layer perceptron."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn


def build(input_shape: tuple[int, ...], num_classes: int, hidden: Sequence[int] = (64,)) -> nn.Module:
    """Logits [batch, num_classes] for inputs [batch, *input_shape]."""
    widths = [prod(input_shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], num_classes))
