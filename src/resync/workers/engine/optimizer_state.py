"""The state of an optimizer over workers, divided into fields per worker and shared fields.

An optimizer over `Workers.rows` has one state, whose fields of shape [k, P] have one row per worker; one over
`Workers.split()` has one state per worker.
"""

import torch
from torch import Tensor
from torch.optim import Optimizer

from resync.workers.engine.workers import Workers

Fields = dict[str, Tensor]


def save(optimizer: Optimizer, workers: Workers) -> tuple[Fields, Fields]:
    """Copies of the fields by name: those with one row per worker, [k, ...], and the shared ones."""
    states = [_fields(optimizer, parameter) for parameter in parameters_of(optimizer)]
    if not is_over_rows(optimizer, workers):
        names = dict.fromkeys(name for state in states for name in state)
        return {name: _stacked(states, name) for name in names}, {}
    fields = {name: value.clone() for name, value in states[0].items()}
    own = {name: value for name, value in fields.items() if value.shape == workers.rows.shape}
    return own, {name: value for name, value in fields.items() if name not in own}


def load(optimizer: Optimizer, workers: Workers, own: Fields, shared: Fields) -> None:
    """Restore the fields that `save` returned."""
    device = workers.rows.device
    for index, parameter in enumerate(parameters_of(optimizer)):
        fields = own if is_over_rows(optimizer, workers) else {name: value[index] for name, value in own.items()}
        restored = {name: value.to(device, copy=True) for name, value in (fields | shared).items()}
        optimizer.state[parameter].update(restored)


def is_over_rows(optimizer: Optimizer, workers: Workers) -> bool:
    """Whether the optimizer has the rows as one parameter, and not one per worker, or those of a module."""
    return optimizer.param_groups[0]["params"][0] is workers.rows


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """The parameters of all groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _fields(optimizer: Optimizer, parameter: Tensor) -> Fields:
    return {name: value for name, value in optimizer.state.get(parameter, {}).items() if value is not None}


def _stacked(states: list[Fields], name: str) -> Tensor:
    """A field of all workers; zero for a worker that has made no step yet, which is the initial value."""
    like = next(state[name] for state in states if name in state)
    return torch.stack([state.get(name, torch.zeros_like(like)) for state in states])
