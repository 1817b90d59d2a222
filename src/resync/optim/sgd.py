"""torch.optim.SGD."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from resync.optim.options import sgd


def build(parameters: list[nn.Parameter], options: sgd.SGD) -> SGD:
    """A fused SGD."""
    given = {"momentum": options.momentum, "nesterov": options.nesterov, "weight_decay": options.decay_of_all}
    return SGD(parameters, lr=0.0, fused=True, **given)


@torch.no_grad()
def decay(rows: nn.Parameter, rate: Tensor, optimizer: Optimizer, *arguments: Any) -> None:
    """Add the gradient of an L2 penalty with one rate per parameter, [P]."""
    if rows.grad is not None:  # a worker without a gradient makes no step
        rows.grad.addcmul_(rows, rate)
