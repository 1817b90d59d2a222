"""torch.optim.SGD."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from resync.engine.optimizer_state import parameters_of
from resync.optim import options as declared


def build(parameters: list[nn.Parameter], options: declared.SGD) -> SGD:
    """A fused SGD, whose parameters may take their first steps at different times."""
    given = {"momentum": options.momentum, "nesterov": options.nesterov, "weight_decay": options.decay_of_all}
    optimizer = SGD(parameters, lr=0.0, fused=True, **given)
    if options.momentum:
        optimizer.register_step_pre_hook(_begin_momentum)
    return optimizer


@torch.no_grad()
def _begin_momentum(optimizer: Optimizer, *arguments: Any) -> None:
    """Give parameters zero momentum before their first step, which is then that without any.

    torch's fused step refuses parameters of which only some have momentum, as those of a straggler have not.
    """
    parameters = parameters_of(optimizer)
    if len(optimizer.state) < len(parameters):
        for parameter in parameters:
            if parameter.grad is not None and parameter not in optimizer.state:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


@torch.no_grad()
def decay(rows: nn.Parameter, rate: Tensor, optimizer: Optimizer, *arguments: Any) -> None:
    """Add the gradient of an L2 penalty with one rate per parameter, [P]."""
    if rows.grad is not None:  # a worker without a gradient makes no step
        rows.grad.addcmul_(rows, rate)
