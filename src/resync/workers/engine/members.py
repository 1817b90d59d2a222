"""The GPUs of a worker: which process hosts which of them, and what they exchange among themselves.

A worker is a replica of the model. It has g members, one for each of its GPUs, and each computes the gradient of its
share of the worker's batch: the nodes of 8 GPUs of Assran et al. 2019 and Wang et al. 2020. W processes host K workers,
either K/W whole workers in each, or g*K/W members of one worker in each. The processes of a worker have consecutive
ranks.
"""

from collections.abc import Iterable
from datetime import timedelta

import torch.distributed as dist
from torch import Tensor

from resync.base.errors import UserError


class Members:
    """Which members of which workers are in this process, and the other processes of its worker.

    Attributes:
        num_workers, number: workers in all processes, K, and members of a worker, g.
        rank, world_size, group: of this process, of how many, in which group; None: in that of all processes.
        num_local, first: members in this process, and the number of the first of them.
        processes: processes of a worker; 1 where a process hosts whole workers.
        replica_rank: rank of this process among those of its worker.
        replica_index: index of this process among the hosts of workers: its first worker / workers per process.
        replica_group: the process group of this worker; None where it is one process.
        cross_replica_group: that of the processes with this rank in their workers, `group` where a worker is one
            process; None stands for all processes.

    Raises ValueError if `world_size` processes cannot share the members evenly.
    """

    def __init__(
        self,
        num_workers: int,
        number: int = 1,
        rank: int = 0,
        world_size: int = 1,
        timeout: timedelta | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.num_workers, self.number = num_workers, number
        self.rank, self.world_size, self.group = rank, world_size, group
        self.processes = max(1, world_size // num_workers)
        if num_workers * self.processes % world_size or number % self.processes:
            workers = f"{num_workers} workers" + (f" of {number} GPUs" if number > 1 else "")
            raise UserError(f"{workers} cannot be spread evenly over {world_size} processes")
        self.replica_index, self.replica_rank = divmod(rank, self.processes)
        self.num_local = number // self.processes
        self.first = self.replica_rank * self.num_local
        self._first_rank = rank - self.replica_rank
        self.replica_group: dist.ProcessGroup | None = None
        self.cross_replica_group = group
        if self.processes > 1:
            of_worker = [range(first, first + self.processes) for first in range(0, world_size, self.processes)]
            self.replica_group, _ = dist.new_subgroups_by_enumeration([list(ranks) for ranks in of_worker], timeout)
            of_rank = [list(ranks) for ranks in zip(*of_worker, strict=True)]
            self.cross_replica_group, _ = dist.new_subgroups_by_enumeration(of_rank, timeout)

    def mean_(self, values: Tensor) -> Tensor:
        """Replace `values` by the mean over the processes of the worker, in place."""
        if self.processes > 1:
            dist.all_reduce(values, group=self.replica_group)
            values.div_(self.processes)
        return values

    def share_(self, values: Iterable[Tensor]) -> None:
        """Overwrite `values` with those of the worker's first process, in place."""
        for value in values if self.processes > 1 else ():
            dist.broadcast(value, src=self._first_rank, group=self.replica_group)

    def shard(self, rows: Tensor) -> Tensor:
        """The part of `rows` [..., n] that this process exchanges with other workers: a view [..., m].

        m is ceil(n / processes), less in the last shards, which may be empty.
        """
        size = self.shard_size(rows.shape[-1])
        return rows[..., self.replica_rank * size : (self.replica_rank + 1) * size]

    def shard_size(self, length: int) -> int:
        """Elements of the first and largest shard of a vector of this length."""
        return -(-length // self.processes)

    def gather(self, shards: Tensor, length: int) -> Tensor:
        """The whole vectors [..., length] from the shards [..., shard_size(length)] of the worker's processes."""
        if self.processes == 1:
            return shards
        if shards.numel() == 0:  # no message at all
            return shards.new_empty(*shards.shape[:-1], length)
        gathered = shards.new_empty(self.processes, *shards.shape)
        dist.all_gather_into_tensor(gathered.flatten(0, 1), shards, group=self.replica_group)
        return gathered.movedim(0, -2).flatten(-2)[..., :length]


def ranks_of(group: dist.ProcessGroup | None) -> list[int]:
    """The ranks in `group`, as torch.distributed counts them."""
    return dist.get_process_group_ranks(group) if dist.is_initialized() else [0]
