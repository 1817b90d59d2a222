"""torch.optim.SGD."""

from torch import nn
from torch.optim import SGD


def build(
    parameters: list[nn.Parameter], momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
) -> SGD:
    """SGD in one fused pass over the parameters."""
    return SGD(parameters, lr=0.0, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay, fused=True)
