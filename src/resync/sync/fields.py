"""Fields of the optimizer's state (momentum, moments), which algorithms average or reset."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer

from resync.engine.optimizer_state import is_over_rows
from resync.engine.transport import Transport
from resync.engine.workers import Workers


def average_fields(workers: Workers, optimizer: Optimizer, transport: Transport, names: Sequence[str]) -> None:
    """Replace each named field by its mean over all workers. Raises ValueError for a field that does not exist."""
    for name in names:
        with field(workers, optimizer, name) as values:
            transport.mean_(values)


@contextmanager
def field(workers: Workers, optimizer: Optimizer, name: str) -> Iterator[Tensor]:
    """The named field of all local workers as [k, P]; what is done to it is done to the optimizer's state.

    Of an optimizer over modules it is a copy, which is written back; a parameter without state counts as zero.

    Raises ValueError for a field that does not exist.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    tensors = [_tensor(optimizer, parameter, name) for parameter in parameters]
    if all(tensor is None for tensor in tensors):
        have = sorted({key for state in optimizer.state.values() for key in state})
        raise ValueError(f"the optimizer has no state {name!r}, allowed: {', '.join(have) or 'none'}")
    if is_over_rows(optimizer, workers):
        assert tensors[0] is not None
        yield tensors[0]
        return
    pairs = list(zip(parameters, tensors, strict=True))
    flat = [torch.zeros_like(each).flatten() if value is None else value.flatten() for each, value in pairs]
    whole = torch.cat(flat).detach().unsqueeze(0)
    yield whole
    for (_, value), part in zip(pairs, whole[0].split([each.numel() for each in parameters]), strict=True):
        if value is not None:
            value.copy_(part.view_as(value))


def moments(optimizer: Optimizer) -> list[str]:
    """The names of the fields that have a value for every element of a parameter, as momentum_buffer or exp_avg.

    A step counter is none, although a parameter may be a single number too.
    """
    fits: dict[str, bool] = {}
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if value is not None:
                fits[name] = fits.get(name, True) and isinstance(value, Tensor) and value.shape == parameter.shape
    return [name for name, always in fits.items() if always]


def reset_state(workers: Workers, optimizer: Optimizer) -> None:
    """Make the next step like the optimizer's first.

    The fields of an optimizer over rows, including step counters, start at zero. One over modules, whose fields may
    start elsewhere, makes them again in its next step.
    """
    if not is_over_rows(optimizer, workers):
        optimizer.state.clear()
        return
    with torch.no_grad():
        for value in optimizer.state.get(workers.rows, {}).values():
            if isinstance(value, Tensor):
                value.zero_()


def _tensor(optimizer: Optimizer, parameter: Tensor, name: str) -> Tensor | None:
    """The field of one parameter, if it has a value for every element."""
    value = optimizer.state.get(parameter, {}).get(name)
    return value if isinstance(value, Tensor) and value.shape == parameter.shape else None


def decayed(rows: Tensor, workers: Workers, optimizer: Optimizer) -> Tensor:
    """`rows` [k, P] after the decoupled weight decay of the step that `optimizer` has just taken from there.

    Muon has it, and what sets `decoupled_weight_decay`, as torch's AdamW; the decay of others counts as gradient. A
    parameter without a gradient does not decay.
    """
    if not optimizer.param_groups[0].get("decoupled_weight_decay", type(optimizer).__name__ == "Muon"):
        return rows
    if is_over_rows(optimizer, workers):
        [group] = optimizer.param_groups
        return rows * (1 - group["lr"] * group.get("decay_rates", group["weight_decay"]))
    factors = {
        id(parameter): 1.0 if parameter.grad is None else 1 - group["lr"] * group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    of_row = [rows.new_full((parameter.numel(),), factors[id(parameter)]) for parameter in workers.parameters[0]]
    return rows * torch.cat(of_row)
