"""The transport between members that change: every exchange ends on all of them, with those that are left."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from resync.engine.clocks import Clocks
from resync.engine.compression import Compression
from resync.engine.members import Members
from resync.engine.membership import Lost, Membership, failures_as_lost
from resync.engine.transport import Number, PostedMean, Transport


@dataclass
class _ElasticMean(PostedMean):
    """An average in flight; with those that are left, if somebody is lost meanwhile."""

    transport: "ElasticTransport"
    sent: Tensor
    epoch: int

    def wait(self) -> Tensor:
        """The mean over the members, [P]."""

        def receive() -> None:
            request, self.request = self.request, None
            if request is not None and self.transport.epoch == self.epoch:
                self.transport.membership.wait(request)
            else:
                self.total = self.sent.clone()  # into the one before, a message that was given up may still write
                self.transport.membership.sum_(self.total)

        self.transport.atomic(receive, [], meets=False)
        return self.total.div_(self.transport.num_workers)


class _OfMembers(Transport):
    """Counts the bytes of a worker where the number of workers changes."""

    def __init__(self, num_workers: int, clocks: Clocks) -> None:
        super().__init__(num_workers, clocks)
        self._bytes = 0.0

    @property
    def bytes_sent(self) -> int:
        return int(self._bytes)

    @property
    def place(self) -> tuple[int, int]:
        """Alone: every process evaluates on all samples, since one that shares them may be lost."""
        return 0, 1

    def broadcast(self, value: Number) -> Number:
        """The value itself, which is the same everywhere."""
        return value

    def _count(self, num_bytes: int) -> None:
        if self._counting and self.num_workers > 1:
            self._bytes += num_bytes / self.num_workers

    def state_dict(self) -> dict[str, Any]:
        return {"bytes": self._bytes, "wire_bytes": self.wire_bytes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._bytes, self.wire_bytes = state["bytes"], state["wire_bytes"]


class ElasticTransport(_OfMembers):
    """One worker per process; `num_workers` and `rank` are those of the members of this epoch."""

    def __init__(self, membership: Membership, clocks: Clocks) -> None:
        super().__init__(1, clocks)
        self.membership = membership
        self._within = False

    @property
    def epoch(self) -> int:
        return self.membership.epoch

    @property
    def ranks(self) -> list[int]:
        """This process only: torch.distributed has those of its replica."""
        return [self.membership.processes.rank]

    def follow(self) -> None:
        """Take over the members of the newest epoch."""
        number, index = len(self.membership.members), self.membership.index
        self.num_workers = self.world_size = number
        self.rank, self.members = index, Members(number, 1, index, number)

    def renew(self, at_rest: bool) -> None:
        self.membership.renew(at_rest)
        self.follow()

    def atomic(self, change: Callable[[], None], tensors: Sequence[Tensor], meets: bool = True) -> None:
        """Make a change of `tensors` by exchanges, on all members or on none, again with those that are left.

        `meets`: they meet before it, too. Raises Resumed if the others have gone on without this replica; the tensors
        are then as before.
        """

        def change_and_meet() -> None:
            change()
            self._meet()

        saved, sent = [tensor.clone() for tensor in tensors], self._bytes
        while True:
            self._within = True
            self.membership.attempted()
            try:
                with self.timed():
                    if meets:
                        self.membership.together(self._meet)
                    self.membership.together(change_and_meet)
                self.membership.completed()
                return
            except Lost:
                self._bytes = sent  # an exchange counts once, however often it is made
                for tensor, before in zip(tensors, saved, strict=True):
                    tensor.copy_(before)
            finally:
                self._within = False
            self.renew(at_rest=False)

    def _meet(self) -> None:
        self.membership.meet(self.membership.exchanges)

    @torch.no_grad()
    def mean_(self, rows: Tensor, all_reduce: str = "default") -> None:
        def average() -> None:
            self._all_reduce(rows[0], all_reduce)
            rows.div_(self.num_workers)

        if self._within:
            average()
        else:
            self.atomic(average, [rows])
        self._count(self.num_workers * rows[0].nbytes)

    @torch.no_grad()
    def post_mean(self, rows: Tensor, compression: Compression | None = None) -> PostedMean:
        assert not compression  # attaching refuses it
        total, request = rows[0].clone(), None
        self.membership.attempted()
        if self.num_workers > 1 and total.numel():
            try:
                request = self.membership.post_sum(total)
                self.communication_is_known = False
            except Lost:  # the average is made when it is waited for
                request = None
        self._count(self.num_workers * total.nbytes)
        return _ElasticMean(total, request, self, rows[0], self.epoch if request is not None else -1)

    def gather(self, values: Tensor) -> Tensor:
        """The members' values, [1, ...] in each, as [n, ...] in all; never counted."""
        found: list[Tensor] = []

        def meet() -> None:
            found[:] = [values.new_zeros(self.num_workers, *values.shape[1:])]
            found[0][self.rank] = values[0]
            self.membership.sum_(found[0])

        with self.uncounted():
            meet() if self._within else self.atomic(meet, [])
        return found[0]

    def sum_(self, values: Tensor) -> Tensor:
        """The values themselves, since every member evaluates on all samples."""
        return values

    def _all_reduce(self, total: Tensor, name: str) -> None:
        if self.num_workers > 1:
            self.membership.sum_(total)
            self.wire_bytes += total.nbytes if self._counting else 0

    def _deliver(self, shards: Tensor, inbox: Tensor, sender: int, receiver: int, slot: int) -> list[Any]:
        tag = slot * self.num_workers + receiver
        if sender == receiver == self.rank:
            inbox[0].copy_(shards[0])
        elif shards.numel() == 0:  # a shard without parameters
            return []
        elif sender == self.rank:
            self.wire_bytes += shards[0].nbytes if self._counting else 0
            return [(self.membership.group.send, shards[0], receiver, tag)]
        elif receiver == self.rank:
            return [(self.membership.group.recv, inbox[0], sender, tag)]
        return []

    def _start(self, operations: list[Any]) -> list[Any]:
        """Start the messages, the receiving ones first."""
        receive = self.membership.group.recv
        with failures_as_lost():
            ordered = sorted(operations, key=lambda each: each[0] != receive)
            return [_Message(call([tensor], peer, tag)) for call, tensor, peer, tag in ordered]


class _Message:
    """A message whose loss is one of a member."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def wait(self) -> None:
        work, self._work = self._work, None
        with failures_as_lost():
            work.wait()


class SimulatedTransport(_OfMembers):
    """All workers in this process, of whom those in `present` take part; the rows of the others are in no exchange."""

    def __init__(self, num_workers: int, clocks: Clocks) -> None:
        super().__init__(num_workers, clocks)
        self.present = list(range(num_workers))
        self._epoch = 1

    @property
    def epoch(self) -> int:
        return self._epoch

    def change(self, present: list[int]) -> None:
        self.present, self.num_workers = present, len(present)
        self._epoch += 1

    @torch.no_grad()
    def mean_(self, rows: Tensor, all_reduce: str = "default") -> None:
        with self.timed():
            rows.copy_(self._mean(rows).expand_as(rows))
        self._count(self.num_workers * rows[0].nbytes)

    @torch.no_grad()
    def post_mean(self, rows: Tensor, compression: Compression | None = None) -> PostedMean:
        self._count(self.num_workers * rows[0].nbytes)
        return _SimulatedMean(rows, None, self)

    def _mean(self, rows: Tensor) -> Tensor:
        return rows[self.present].sum(0).div_(self.num_workers)

    @contextmanager
    def of_members(self, rows: Tensor) -> Iterator[Tensor]:
        own = rows[self.present]
        yield own
        rows[self.present] = own

    def gather(self, values: Tensor) -> Tensor:
        return values[self.present]


@dataclass
class _SimulatedMean(PostedMean):
    """An average in flight of the rows `total` [K, P], over those who are there when it is received."""

    transport: SimulatedTransport

    def wait(self) -> Tensor:
        return self.transport._mean(self.total)
