"""torch.optim.AdamW."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer


def build(
    parameters: list[nn.Parameter],
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> AdamW:
    """AdamW in one fused pass over the parameters."""
    return AdamW(parameters, lr=0.0, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay, fused=True)


@torch.no_grad()
def decay(rows: nn.Parameter, rate: Tensor, optimizer: Optimizer, *arguments: Any) -> None:
    """Decay the parameters with one rate per parameter, [P], times the learning rate."""
    if rows.grad is not None:  # a worker without gradient makes no step
        rows.mul_(1 - optimizer.param_groups[0]["lr"] * rate)
