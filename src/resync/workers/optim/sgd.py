"""torch.optim.SGD."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from resync.base.torch_private import fused_sgd, keep_unwrapped
from resync.workers.optim import options as declared


class FusedSGD(SGD):
    """torch's fused SGD, without what surrounds a step there: that takes longer than the gradient of a small net.

    Its parameters may take their first steps at different times.
    """

    def __init__(self, parameters: list[nn.Parameter], **options: Any) -> None:
        super().__init__(parameters, lr=0.0, fused=True, **options)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """A step of all parameters that have a gradient, with the same bits as torch's."""
        assert closure is None
        for hook in self._optimizer_step_pre_hooks.values():
            hook(self, (), {})
        for group in self.param_groups:
            stepped = [parameter for parameter in group["params"] if parameter.grad is not None]
            momentum: list[Tensor] = []
            for parameter in stepped if group["momentum"] else ():
                state = self.state[parameter]
                if "momentum_buffer" not in state:  # a first step is one without any
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                momentum.append(state["momentum_buffer"])
            fused_sgd(stepped, momentum, group)


keep_unwrapped(FusedSGD)


def build(parameters: list[nn.Parameter], options: declared.SGD) -> FusedSGD:
    """A fused SGD."""
    given = {"momentum": options.momentum, "nesterov": options.nesterov, "weight_decay": options.decay_of_all}
    return FusedSGD(parameters, **given)


@torch.no_grad()
def decay(rows: nn.Parameter, rate: Tensor, optimizer: Optimizer, *arguments: Any) -> None:
    """Add the gradient of an L2 penalty with one rate per parameter, [P]."""
    if rows.grad is not None:  # a worker without a gradient makes no step
        rows.grad.addcmul_(rows, rate)
