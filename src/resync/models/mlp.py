"""Multi-layer perceptron."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn

from resync.models.layers import ACTIVATIONS


def build(
    input_shape: tuple[int, ...], num_classes: int, hidden: Sequence[int] = (64,), activation: str = "relu"
) -> nn.Module:
    """Logits [batch, num_classes] for inputs [batch, *input_shape]."""
    widths = [prod(input_shape), *hidden]
    modules: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(widths):
        modules += [nn.Linear(fan_in, fan_out), ACTIVATIONS[activation]()]
    return nn.Sequential(*modules, nn.Linear(widths[-1], num_classes))
