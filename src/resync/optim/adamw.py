"""torch.optim.AdamW."""

from torch import nn
from torch.optim import AdamW


def build(
    parameters: list[nn.Parameter],
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> AdamW:
    """AdamW in one fused pass over the parameters."""
    return AdamW(parameters, lr=0.0, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay, fused=True)
