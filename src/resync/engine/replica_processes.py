"""The processes of one replica, which decide together who takes part in an exchange."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist

Answer = TypeVar("Answer")


class ReplicaProcesses:
    """Those of torch.distributed as it is set up, within one replica; without it this process alone."""

    def __init__(self) -> None:
        self.rank: int = dist.get_rank() if dist.is_initialized() else 0
        self.size: int = dist.get_world_size() if dist.is_initialized() else 1
        self._group = dist.new_group(backend="gloo") if self.size > 1 else None

    def all(self, done: bool) -> bool:
        """Whether it is done in all of them; the same answer in each."""
        if self.size == 1:
            return done
        found = torch.tensor(int(done))
        dist.all_reduce(found, dist.ReduceOp.MIN, group=self._group)
        return bool(found)

    def first(self, ask: Callable[[], Answer]) -> Answer:
        """What the first of them is answered, or the TimeoutError that it gets, in each."""
        if self.size == 1:
            return ask()
        said: list[Any] = [None]
        if self.rank == 0:
            try:
                said = [ask()]
            except TimeoutError as error:
                said = [error]
        dist.broadcast_object_list(said, group=self._group, group_src=0)
        if isinstance(said[0], TimeoutError):
            raise said[0]
        answer: Answer = said[0]
        return answer

    def gather(self, own: Any) -> list[Any]:
        """The values of all of them, by rank."""
        found: list[Any] = [own] * self.size
        if self.size > 1:
            dist.all_gather_object(found, own, group=self._group)
        return found
