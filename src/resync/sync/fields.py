"""Fields of the optimizer's state (momentum, moments), which algorithms average or reset."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from resync.engine.transport import Transport
from resync.engine.workers import Workers


def average_fields(workers: Workers, optimizer: Optimizer, transport: Transport, names: Sequence[str]) -> None:
    """Replace each named field by its mean over all workers. Raises ValueError for a field that does not exist."""
    for name in names:
        found = list(_tensors(workers, optimizer, name))
        if not found:
            have = sorted({key for state in optimizer.state.values() for key in state})
            raise ValueError(f"the optimizer has no state {name!r}, allowed: {', '.join(have) or 'none'}")
        for field in found:
            transport.mean_(field)


def moments(optimizer: Optimizer) -> list[str]:
    """The names of the fields that have a value for every parameter, such as momentum_buffer or exp_avg."""
    names = {
        name: None
        for parameter, state in optimizer.state.items()
        for name, value in state.items()
        if isinstance(value, Tensor) and value.shape == parameter.shape
    }
    return list(names)


def reset_state(optimizer: Optimizer) -> None:
    """Set every field to zero, including step counters: the next step is like the optimizer's first."""
    with torch.no_grad():
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()


def _tensors(workers: Workers, optimizer: Optimizer, name: str) -> Iterator[Tensor]:
    """The field as [k, ...] tensors: one over all rows, or one per parameter if the optimizer is over modules."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            value = optimizer.state[parameter].get(name)
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                yield value if parameter is workers.rows else value.unsqueeze(0)
