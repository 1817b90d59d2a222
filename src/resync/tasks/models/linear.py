"""Linear classifier."""

from math import prod

from torch import nn

from resync.tasks.models.options import Linear


def build(input_shape: tuple[int, ...], num_classes: int, options: Linear) -> nn.Module:
    """Logits [batch, num_classes] for inputs [batch, *input_shape], all zero at first."""
    layer = nn.Linear(prod(input_shape), num_classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)
