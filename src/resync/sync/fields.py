"""Fields of the optimizer's state (momentum, moments) as rows, which algorithms average or mix."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer

from resync.engine.optimizer_state import is_over_rows, parameters_of
from resync.engine.shards import local
from resync.engine.transport import Transport
from resync.engine.workers import Workers
from resync.errors import UserError


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
    parameters = parameters_of(optimizer)
    values = [optimizer.state.get(parameter, {}).get(name) for parameter in parameters]
    if not any(map(_fits, parameters, values)):
        have = sorted({key for state in optimizer.state.values() for key in state})
        raise UserError(f"the optimizer has no state {name!r}, allowed: {', '.join(have) or 'none'}")
    if is_over_rows(optimizer, workers):
        yield values[0]
        return
    pairs = zip(parameters, values, strict=True)
    parts = [local(value) if _fits(each, value) else torch.zeros_like(local(each)) for each, value in pairs]
    whole = torch.cat([part.detach().flatten() for part in parts]).unsqueeze(0)
    yield whole
    for part, new in zip(parts, whole[0].split([part.numel() for part in parts]), strict=True):
        part.detach().copy_(new.view_as(part))


def moments(optimizer: Optimizer) -> list[str]:
    """The names of the fields that have a value for every element of a parameter, as momentum_buffer or exp_avg."""
    fits: dict[str, bool] = {}
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if value is not None:
                fits[name] = fits.get(name, True) and _fits(parameter, value)
    return [name for name, always in fits.items() if always]


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
