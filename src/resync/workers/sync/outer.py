"""The step of the outer optimizer: momentum on the pseudo-gradient, the change that a round of local steps has made."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def outer_step_(
    anchor: Tensor, buffer: Tensor, pseudo_gradient: Tensor, *, lr: float, momentum: float, nesterov: bool
) -> None:
    """Update `anchor` x and `buffer` b in place with the pseudo-gradient D, which is overwritten.

        b = momentum b + D;   x = x - lr (D + momentum b)      (nesterov: Douillard et al. 2023)
                              x = x - lr b                     (heavy ball: Wang et al. 2020, without their gamma)

    The tensors have one shape [..., n] and may be slices of larger ones, for a part of the parameters. D is the anchor
    minus the parameters at the end of the round, averaged over the workers or not; b is 0 at the start of the training.
    With constant lr and momentum these are the steps of torch.optim.SGD with dampening 0 on D as gradient.
    """
    buffer.mul_(momentum).add_(pseudo_gradient)
    direction = pseudo_gradient.add_(buffer, alpha=momentum) if nesterov else buffer
    anchor.sub_(direction, alpha=lr)


@contextmanager
def on_device(device: torch.device, *kept: Tensor) -> Iterator[list[Tensor]]:
    """What `Training.keep` has stored, on `device` for the block; what is done to it is done to what is stored."""
    here = [tensor.to(device, non_blocking=True) for tensor in kept]
    yield here
    for stored, own in zip(kept, here, strict=True):
        if own is not stored:
            stored.copy_(own)


def keep_on_cpu(values: Tensor) -> Tensor:
    """A copy in CPU memory; that of a GPU's tensor is pinned, so that it moves fast."""
    return torch.empty_like(values, device="cpu", pin_memory=values.is_cuda).copy_(values)
