"""What of a tensor is in this process: `fully_shard` makes parameters, gradients and optimizer states DTensors."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor; importing the class takes a second, and its users have done so."""
    return hasattr(tensor, "device_mesh")


def local(tensor: Any) -> Any:
    """The part of a tensor in this process, in the same memory; an ordinary tensor is one part."""
    if not is_sharded(tensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()


def plain(tensor: Any) -> list[Tensor]:
    """The ordinary tensors in this process of which a tensor consists: itself, its shard, or a quantised weight's."""
    tensor = local(tensor)
    if type(tensor.data) is Tensor or not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [part for name in names for part in plain(getattr(tensor, name))]


def shard_group(tensor: Any) -> dist.ProcessGroup:
    """The processes that have a shard of a DTensor over one dimension of a mesh."""
    group: dist.ProcessGroup = tensor.device_mesh.get_group()
    return group


def as_shard(part: Tensor, parameter: Any) -> Tensor:
    """This process's part [..., n] of something that has [..., *shape] of a sharded parameter, as a DTensor."""
    from torch.distributed.tensor import DTensor, Shard

    leading = part.shape[:-1]
    whole = torch.empty(*leading, *parameter.shape, device="meta")
    return DTensor.from_local(
        part.unflatten(-1, local(parameter).shape), parameter.device_mesh, [Shard(len(leading))],
        run_check=False, shape=whole.shape, stride=whole.stride(),
    )  # fmt: skip


def reshard(model: nn.Module) -> None:
    """Let the parameters of a model be its shards, where an evaluation has left what it had gathered of them."""
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()
