"""Fields of the optimizer's state (momentum, moments) as rows, which algorithms average or mix."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from resync.base.errors import UserError
from resync.base.torch_private import remove_hooks
from resync.workers.engine.optimizer_state import is_over_rows, parameters_of
from resync.workers.engine.shards import local
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers


def average_fields(workers: Workers, optimizer: Optimizer, transport: Transport, names: Sequence[str]) -> None:
    """Replace each named field by its mean over all workers. Raises ValueError for a field that does not exist."""
    for name in names:
        with field(workers, optimizer, name) as values:
            transport.mean_(values)


@contextmanager
def field(workers: Workers, optimizer: Optimizer, name: str) -> Iterator[Tensor]:
    """The named field of all local workers as [k, P]; what is done to it is done to the optimizer's state.

    Of an optimizer over modules it is a copy, which is written back, with a mark behind it for each of the N
    parameters of the row, [1, P + N]: whether the parameter has the field, which counts as zero where it has not. If it
    then has a mark, as that of another worker was added, it gets the state that zero gradients would have left.

    Raises ValueError for a field that no parameter of the optimizer has.
    """
    if is_over_rows(optimizer, workers):
        yield _like(optimizer, parameters_of(optimizer), name)
        return
    own = set(map(id, workers.parameters[0]))
    parameters = [candidate for candidate in parameters_of(optimizer) if id(candidate) in own]
    values = [optimizer.state.get(parameter, {}).get(name) for parameter in parameters]
    has = list(map(_fits, parameters, values))
    kind = next((value for value, fits in zip(values, has, strict=True) if fits), None)
    # Where none of the row has the field, as that of another optimizer in this one, others do.
    dtype = (_like(optimizer, [*parameters, *_trained(optimizer)], name) if kind is None else kind).dtype
    parts = [
        local(value if fits else torch.zeros_like(weight, dtype=dtype)).detach().flatten()
        for weight, value, fits in zip(parameters, values, has, strict=True)
    ]
    whole = torch.cat([*parts, torch.tensor(has, dtype=dtype, device=parts[0].device)]).unsqueeze(0)
    yield whole
    *changed, marks = whole[0].split([*(part.numel() for part in parts), len(parts)])
    marked = has if all(has) else marks.bool().tolist()
    for parameter, had, new, mark in zip(parameters, has, changed, marked, strict=True):
        if mark and not had:
            _complete_state(optimizer, parameter)
        if mark:
            kept = local(optimizer.state[parameter][name]).detach()
            kept.copy_(new.view_as(kept))


def _like(optimizer: Optimizer, parameters: Sequence[Tensor], name: str) -> Tensor:
    """The named field as the optimizer would make it. Raises ValueError for one that it would not make.

    All workers have the same optimizer, and so raise it together, whatever gradients each has had.
    """
    states = [optimizer.state.get(parameter) or _first_state(optimizer, parameter) for parameter in parameters]
    for parameter, state in zip(parameters, states, strict=True):
        if _fits(parameter, state.get(name)):
            return state[name]
    have = sorted({key for state in states for key, value in state.items() if value is not None})
    raise UserError(f"the optimizer has no state {name!r}, allowed: {', '.join(have) or 'none'}")


@torch.no_grad()
def _first_state(optimizer: Optimizer, parameter: Tensor) -> dict[str, Any]:
    """The state that a parameter would have after one step of the optimizer with a gradient of zero."""
    still = torch.zeros_like(parameter, requires_grad=True)
    still.grad = torch.zeros_like(parameter)
    group = next(group for group in optimizer.param_groups if any(member is parameter for member in group["params"]))
    alone = copy(optimizer)
    alone.state, alone.param_groups = defaultdict(dict), [group | {"params": [still]}]
    remove_hooks(alone)
    type(optimizer).step(alone)  # that of the object may be one that a scheduler has put there
    return dict(alone.state[still])


def _complete_state(optimizer: Optimizer, parameter: Tensor) -> None:
    """Give a parameter the state of gradients that were always zero, with the step counters of the others."""
    state = optimizer.state[parameter]
    for name, value in _first_state(optimizer, parameter).items():
        if state.get(name) is not None:
            continue
        others = [other[name] for other in optimizer.state.values() if other.get(name) is not None]
        is_counter = not _fits(parameter, value) and isinstance(value, (Tensor, int, float))
        largest = max([value, *others], key=float) if is_counter else value
        state[name] = largest.to(value, copy=True) if isinstance(value, Tensor) else copy(largest)


def moments(optimizer: Optimizer) -> list[str]:
    """The names of the fields that have a value for every element of a parameter, as momentum_buffer or exp_avg.

    They are the same for all workers, also for one whose parameters have had no gradient yet.
    """
    fits: dict[str, bool] = {}
    for parameter in _trained(optimizer):
        state = optimizer.state.get(parameter) or _first_state(optimizer, parameter)
        for name, value in state.items():
            if value is not None:
                fits[name] = fits.get(name, True) and _fits(parameter, value)
    return sorted(name for name, always in fits.items() if always)


def _trained(optimizer: Optimizer) -> list[Tensor]:
    """The parameters that get gradients: frozen ones have no state, and may be integers."""
    return [parameter for parameter in parameters_of(optimizer) if parameter.requires_grad]


def _fits(parameter: Tensor, value: object) -> bool:
    return isinstance(value, Tensor) and value.shape == parameter.shape


def apply_decay(rows: Tensor, workers: Workers, optimizer: Optimizer) -> Tensor:
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
    of_row = [rows.new_full((local(parameter).numel(),), factors[id(parameter)]) for parameter in workers.parameters[0]]
    return rows * torch.cat(of_row)
