"""A worker whose parameters are sharded by FSDP2 (`fully_shard`): its row is that of this process's shards."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from resync.workers.engine.attached_workers import AttachedWorkers
from resync.workers.engine.shards import as_shard, local, reshard, shard_group
from resync.workers.engine.workers import places, row_like


class ShardedWorkers(AttachedWorkers):
    """One worker of several processes, each with shards of these parameters of `model`, in their order.

    FSDP owns the memory of the shards. `rows` [1, P], P the elements of this process's shards, is a copy: it is read
    from them when it is first asked for, and `write_back` ends its use. Where no algorithm asks for the rows, as within
    the rounds of a local method, nothing is copied.

    Raises ValueError as `AttachedWorkers`.
    """

    def __init__(self, model: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
        self.models, self.parameters = [model], [list(parameters)]
        self._rows = row_like(self.parameters[0], 1)
        self._split = []
        self._is_read = False
        self._group = shard_group(self.parameters[0][0])

    @property
    def rows(self) -> nn.Parameter:
        if not self._is_read:
            self._is_read = True
            self._copy(to_parameters=False)
        return self._rows

    def bind(self) -> None:
        """Give the parameters the values of the rows."""
        self.write_back()

    def write_back(self) -> None:
        """Give the parameters the values of the rows, if these were asked for; they are then read anew."""
        if self._is_read:
            self._copy(to_parameters=True)
            self._is_read = False

    @contextmanager
    def shown(self) -> Iterator[None]:
        """In the block the parameters have the values of the rows, which remain what is true of the worker."""
        self.write_back()
        yield
        self._is_read = True

    def are_bound(self) -> bool:
        """Whether all parameters are where they are read and written: FSDP keeps them wherever they are."""
        return True

    def sha256(self) -> str:
        """SHA-256 of the bytes of the whole worker's row, whatever its shards; for all processes of the worker."""
        self.write_back()
        digest = sha256()
        for parameter in self.parameters[0]:
            whole: Any = parameter
            digest.update(whole.full_tensor().detach().cpu().view(torch.uint8).numpy())
        return digest.hexdigest()

    def spread(self, state: Any) -> Any:
        """A state whose rows [..., P] are DTensors [..., *shape] by the names of parameters.

        torch.distributed.checkpoint loads these into other shards. The rest is equal in all processes of the worker.
        """
        if isinstance(state, dict):
            return {key: self.spread(value) for key, value in state.items()}
        if not isinstance(state, Tensor) or state.shape[-1:] != self._rows.shape[-1:]:
            return state
        parts = state.split([local(parameter).numel() for parameter in self.parameters[0]], -1)
        return {name: as_shard(part, parameter) for (name, parameter), part in zip(self._named(), parts, strict=True)}

    def gathered(self, state: Any) -> Any:
        """What `spread` was given."""
        if not isinstance(state, dict):
            return state
        if state.keys() != dict(self._named()).keys():
            return {key: self.gathered(value) for key, value in state.items()}
        parts = [local(state[name]).flatten(state[name].ndim - parameter.ndim) for name, parameter in self._named()]
        return torch.cat(parts, -1)

    def _named(self) -> list[tuple[str, Tensor]]:
        own = set(map(id, self.parameters[0]))
        return [(name, parameter) for name, parameter in self.models[0].named_parameters() if id(parameter) in own]

    def _give(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        local(parameter.grad).copy_(gradient)

    def gradient_norms(self) -> Tensor:
        """The L2 norm of the gradient over all shards, [1, 1]."""
        squared = super().gradient_norms().square()
        dist.all_reduce(squared, group=self._group)
        return squared.sqrt()

    def fragments(self, number: int) -> list[slice]:
        """The parts of this process of the fragments of the whole vector."""
        whole = sum(parameter.numel() for parameter in self.parameters[0])
        rank, size = dist.get_rank(self._group), dist.get_world_size(self._group)
        ends = [self._elements_before(whole * index // number, rank, size) for index in range(number + 1)]
        return [slice(*pair) for pair in pairwise(ends)]

    def _elements_before(self, end: int, rank: int, size: int) -> int:
        """How many elements of this process's shards are among the first `end` of the whole vector."""
        before = first = 0
        for parameter in self.parameters[0]:
            # fully_shard divides the first dimension as torch.chunk does.
            entries = min(rank * -(-len(parameter) // size), len(parameter))
            start = first + entries * (parameter.numel() // len(parameter))
            before += min(max(end - start, 0), local(parameter).numel())
            first += parameter.numel()
        return before

    @torch.no_grad()
    def _copy(self, to_parameters: bool) -> None:
        for parameter, place in places(self.parameters[0], self._rows.data[0]):
            if to_parameters:
                local(parameter).copy_(place)
            else:
                place.copy_(local(parameter))
        if to_parameters:
            reshard(self.models[0])  # it would go on with the values that it has gathered
