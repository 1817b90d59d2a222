"""Multi-layer perceptron."""

from itertools import pairwise
from math import prod

from torch import nn

from resync.tasks.models.layers import ACTIVATIONS
from resync.tasks.models.options import MLP


def build(input_shape: tuple[int, ...], num_classes: int, options: MLP) -> nn.Module:
    """Logits [batch, num_classes] for inputs [batch, *input_shape]."""
    widths = [prod(input_shape), *options.hidden]
    modules: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(widths):
        modules += [nn.Linear(fan_in, fan_out), ACTIVATIONS[options.activation]()]
    return nn.Sequential(*modules, nn.Linear(widths[-1], num_classes))
