"""What torch has no public interface for, as in torch 2.15; tests/training/test_attach*.py fail where it changes."""

import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer


def default_store() -> dist.Store:
    """The store of the default process group."""
    return dist.distributed_c10d._get_default_store()


def time_limit(device: torch.device, group: dist.ProcessGroup | None = None) -> timedelta:
    """How long a process group waits for others, as given where it was made; None: the default one."""
    limit: timedelta = (group or dist.group.WORLD)._get_backend(device).options._timeout
    return limit


def is_shard(parameter: Tensor) -> bool:
    """Whether a parameter is one of FullyShardedDataParallel, or a part of it."""
    return getattr(parameter, "_fsdp_flattened", False)


def takes_loss_scale(optimizer: Optimizer) -> bool:
    """Whether a GradScaler leaves the loss scale in the gradients to this optimizer, as to a fused one."""
    return getattr(optimizer, "_step_supports_amp_scaling", False)


def calls_hooks(optimizer: Optimizer) -> bool:
    """Whether torch calls the hooks of this optimizer's steps: it has prepared both the object and its class."""
    return hasattr(optimizer, "_optimizer_step_pre_hooks") and getattr(type(optimizer).step, "hooked", False)


def remove_hooks(optimizer: Optimizer) -> None:
    """Let the steps of an optimizer call no hooks; a copy of it has those that it was copied from."""
    optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks = OrderedDict(), OrderedDict()


def is_within_a_step(optimizer: Optimizer) -> bool:
    """Whether the step whose hook is running was called by another step of this optimizer; called by the hook itself.

    torch calls the hooks for each class with a `step` of its own, so that `super().step()` calls them again. Counting
    alone would not do: a step that raises never reaches its second hook.
    """
    step: FrameType | None = sys._getframe(2)
    assert step is not None
    code, caller = step.f_code, step.f_back
    while caller and not (caller.f_code is code and caller.f_locals["args"][0] is optimizer):
        caller = caller.f_back
    return caller is not None


def fused_sgd(parameters: Sequence[Tensor], momentum: Sequence[Tensor], options: Mapping[str, Any]) -> None:
    """One fused step of torch.optim.SGD with its options, for parameters with a gradient on one device."""
    if parameters:
        torch._fused_sgd_(
            parameters, [parameter.grad for parameter in parameters], momentum,
            weight_decay=options["weight_decay"], momentum=options["momentum"], lr=options["lr"], dampening=0.0,
            nesterov=options["nesterov"], maximize=False, is_first_step=False,
        )  # fmt: skip


def keep_unwrapped(optimizer: type[Optimizer]) -> None:
    """Let torch add no profiling and no hooks around the steps of a class of optimizers, whose `step` calls its own."""
    optimizer.step.hooked = True
