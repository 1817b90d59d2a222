"""torch.optim.AdamW."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from resync.workers.optim import options as declared


def build(parameters: list[nn.Parameter], options: declared.AdamW) -> AdamW:
    """An AdamW, fused or with single operations."""
    given = {"betas": (options.beta1, options.beta2), "eps": options.eps, "weight_decay": options.decay_of_all}
    fused = options.fused is None
    return AdamW(parameters, lr=0.0, fused=fused, foreach=None if fused else False, **given)


@torch.no_grad()
def decay(rows: nn.Parameter, rate: Tensor, optimizer: Optimizer, *arguments: Any) -> None:
    """Decay the parameters by one rate per parameter, [P], times the learning rate."""
    if rows.grad is not None:  # a worker without a gradient makes no step
        rows.mul_(1 - optimizer.param_groups[0]["lr"] * rate)
