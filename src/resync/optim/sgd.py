"""torch.optim.SGD."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer


def build(
    parameters: list[nn.Parameter], momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
) -> SGD:
    """SGD in one fused pass over the parameters."""
    return SGD(parameters, lr=0.0, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay, fused=True)


@torch.no_grad()
def decay(rows: nn.Parameter, rate: Tensor, optimizer: Optimizer, *arguments: Any) -> None:
    """Add the gradient of an L2 penalty with one rate per parameter, [P]."""
    if rows.grad is not None:  # a worker without gradient makes no step
        rows.grad.addcmul_(rows, rate)
