"""Transport of rows between workers, which also counts the communication of synchronisation.

Rank r of W processes hosts the K/W workers r*K/W, r*K/W + 1, ..., or members of one worker. Operations concern all K
workers and give the same result for every W. Each process of a worker exchanges its shard of a vector with the process
of the same index in other workers, and the processes of a worker then gather the whole vector.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from resync.workers.engine.all_reduce import ALL_REDUCES, start
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.compression import Compression, pack, unpack
from resync.workers.engine.members import Members

Number = TypeVar("Number", int, float)
_Slots = tuple[tuple[int, ...], ...]
_Kind = tuple[tuple[int, ...], torch.dtype, torch.device]


@dataclass
class Exchange:
    """Messages in flight. The rows sent must not change before `wait` has returned."""

    sent: Tensor
    inbox: Tensor
    requests: list[dist.Work]
    transport: "Transport"

    def wait(self) -> Tensor:
        """The messages to the local workers, [p, k, P]; zero in unused slots of workers that receive fewer than p."""
        with self.transport.timed():
            for request in self.requests:
                request.wait()
            self.requests = []
            return self.transport.members.gather(self.inbox, self.sent.shape[-1])

    def release(self) -> None:
        """Leave the memory of the messages to a later exchange; what `wait` has returned must not be used any more."""
        self.transport.free_inboxes.setdefault(_kind(self.inbox), []).append(self.inbox)


@dataclass
class PostedMean:
    """An average in flight, of `total` [P], the sum of the local rows as `Transport._scale_` leaves it."""

    total: Tensor
    request: dist.Work | None
    transport: "Transport"

    def wait(self) -> Tensor:
        """The mean over all K workers, [P]."""
        with self.transport.timed():
            if self.request is not None:
                self.request.wait()
            self.transport._gather_(self.total)
        return self.transport._mean_of_scaled_(self.total)


@dataclass
class PackedMean:
    """An average in flight, of the messages of all workers.

    `inbox` [K, m] are this process's shards of them, `sent` [k, m] those of the local workers, `length` is the bytes of
    a whole message, and `like` [k, P] are the rows that they stand for.
    """

    inbox: Tensor
    sent: Tensor
    request: dist.Work | None
    length: int
    like: Tensor
    compression: Compression
    transport: "Transport"

    def wait(self) -> Tensor:
        """The mean over all K workers, [P], added in the order of the workers."""
        with self.transport.timed():
            if self.request is not None:
                self.request.wait()
            messages = self.transport.members.gather(self.inbox, self.length)
        like = self.like[0]
        total = torch.zeros_like(like, dtype=torch.promote_types(like.dtype, torch.float32))
        for message in messages if like.numel() else ():
            total += unpack(message, like, self.compression)
        return total.div_(self.transport.num_workers).to(like.dtype)


class Transport:
    """Averages and exchanges rows between the workers, which `members` spreads over the processes.

    Counts two kinds of bytes: `bytes_sent`, the bytes that one worker sends as a function of the algorithm alone (one
    vector for an average, one vector per peer for an exchange, whether or not the peer is in this process), and
    `wire_bytes`, the bytes that this process actually passes to torch.distributed for other workers: one vector for an
    average by the back end, and every message of an all-reduce made of messages. Seconds are added to the clock
    "communication"; `communication_is_known` is False if messages travel while the workers compute, so that no clock
    can separate the two. Averages of gradients inside a worker are part of its computing, and are in none of these.
    """

    def __init__(self, members: Members, clocks: Clocks) -> None:
        self.members = members
        self.group = members.group
        self.num_workers = members.num_workers
        self.num_local = max(1, members.num_workers // members.world_size)
        self.rank = members.rank
        self.world_size = members.world_size
        self.clocks = clocks
        self.bytes_of_all = 0
        self._averaged = self._messaged = 0
        self.wire_bytes = 0
        self.communication_is_known = True
        # New memory for every message would cost a page fault for each 4 KiB of it.
        self.free_inboxes: dict[_Kind, list[Tensor]] = {}
        self._counting = True

    @property
    def bytes_sent(self) -> int:
        """Bytes that a worker has sent, averaged over the workers."""
        return self.bytes_of_all // self.num_workers

    @property
    def local(self) -> slice:
        first = self.members.replica_index * self.num_local
        return slice(first, first + self.num_local)

    def here(self, workers: Iterable[int]) -> list[int]:
        """The rows of those of the workers that are in this process."""
        local = self.local
        return [worker - local.start for worker in workers if local.start <= worker < local.stop]

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Exclude the traffic of the block from the counts: evaluation and logging are not part of the algorithm."""
        self._counting, before = False, self._counting
        try:
            yield
        finally:
            self._counting = before

    def mean_(self, rows: Tensor, all_reduce: str = "default") -> None:
        """Replace every row of [k, P] by the mean over all K workers, in place.

        `all_reduce` is a name of `resync.workers.engine.all_reduce`, or `default`, that of the back end.
        """
        if self.num_workers == 1:
            return
        with torch.no_grad(), self.timed():
            total = rows[0] if self.num_local == 1 else rows.sum(0)
            self._scale_(total)
            self._all_reduce(total, all_reduce)
            self._mean_of_scaled_(total)
            if self.num_local > 1:
                rows.copy_(total.expand_as(rows))
        self._averaged += self._count(self.num_workers * rows[0].nbytes)

    @torch.no_grad()
    def post_mean(self, rows: Tensor, compression: Compression | None = None) -> PostedMean | PackedMean:
        """Start averaging the rows of [k, P] over all K workers, without waiting; the rows stay as they are."""
        if compression:
            packed = self._post_packed(rows, compression)
            self.communication_is_known &= packed.request is None
            return packed
        total = self._scale_(rows.sum(0))
        shard, request = self.members.shard(total), None
        with self.timed():
            if self.world_size > self.members.processes and shard.numel():
                request = dist.all_reduce(shard, group=self.members.cross_replica_group, async_op=True)
                self.communication_is_known = False
                self.wire_bytes += shard.nbytes if self._counting else 0
        self._averaged += self._count(self.num_workers * rows[0].nbytes)
        return PostedMean(total, request, self)

    @torch.no_grad()
    def packed_mean(self, rows: Tensor, compression: Compression) -> Tensor:
        """The mean [P] of the rows [k, P] of all K workers, each sent with fewer bits and added in float32."""
        return self._post_packed(rows, compression).wait()

    def _post_packed(self, rows: Tensor, compression: Compression) -> PackedMean:
        """Start to send the packed rows to all workers: sums of packed messages cannot be sent on."""
        with self.timed():
            messages = pack(rows, compression)
            size = self.members.shard_size(messages.shape[1])
            shards = self.members.shard(messages)
            sent = F.pad(shards, (0, size - shards.shape[1]))
            inbox, request = sent, None
            if self.world_size > self.members.processes:
                inbox = sent.new_empty(self.num_workers, size)
                group = self.members.cross_replica_group
                request = dist.all_gather_into_tensor(inbox, sent, group=group, async_op=True)
                self.wire_bytes += sent.nbytes if self._counting else 0
        self._count(self.num_workers * messages[0].nbytes)
        return PackedMean(inbox, sent, request, messages.shape[1], rows, compression, self)

    def count_overlapped(self, row: Tensor) -> None:
        """Count the bytes on the wire of an average over all processes that an engine has computed meanwhile.

        `count_average` counts the average itself once, however often the gradient is recomputed.
        """
        self.communication_is_known = False
        self.wire_bytes += row.nbytes

    @torch.no_grad()
    def post(self, rows: Tensor, in_peers: _Slots, places: _Slots | None = None) -> Exchange:
        """Start sending each local worker's row of [k, P] to its out-peers, without waiting.

        `in_peers[r]` lists the workers from which worker r receives, for all K workers; the longest list gives p. The
        messages arrive as [p, k, P], in the order of the lists. With `rows` [s, k, P] a worker has s different
        messages, and `places[r]` lists which of them each of its in-peers sends to r.
        """
        local = _local_plan(in_peers, places)
        outbox = rows if rows.dim() == 3 else rows.unsqueeze(0)
        self._messaged += self._count(local.messages * outbox[0, 0].nbytes)
        if self.world_size == 1:
            inbox = self._inbox(outbox, (local.slots, *outbox.shape[1:]))
            with self.timed():
                local.copy(outbox, inbox)
            return Exchange(rows, inbox, [], self)
        shards = self.members.shard(outbox)
        inbox = self._inbox(outbox, (local.slots, outbox.shape[1], self.members.shard_size(outbox.shape[-1])))
        for worker, peers in enumerate(in_peers[self.local]):
            inbox[len(peers) :, worker].zero_()
        with self.timed():
            operations = []
            for receiver, peers in enumerate(in_peers):
                for slot, sender in enumerate(peers):
                    sent = shards[places[receiver][slot] if places else 0]
                    operations += self._deliver(sent, inbox[slot], sender, receiver, slot)
            requests = start(operations)
        return Exchange(rows, inbox, requests, self)

    def _inbox(self, rows: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Memory for messages to the local workers."""
        free = self.free_inboxes.get((shape, rows.dtype, rows.device))
        return free.pop() if free else rows.new_empty(shape)

    def mix_(self, rows: Tensor, matrix: Tensor, messages: int) -> None:
        """Replace the rows [K, P] of all workers, in a single process, by their sums with the weights [K, K], in place.

        It counts as that many messages.
        """
        with self.timed():
            rows.copy_(matrix @ rows)
        self._count(messages * rows[0].nbytes)

    def count_average(self, rows: Tensor) -> None:
        """Count an average of [k, P] over the workers that an engine has computed itself.

        The engine counts the bytes on the wire.
        """
        self.communication_is_known = False
        self._count(self.num_workers * rows[0].nbytes)

    def count_message(self, message: Tensor) -> None:
        """Count a vector that this process's worker has sent by itself, outside the collective operations."""
        self.wire_bytes += message.nbytes
        self.bytes_of_all += self.num_workers * message.nbytes

    def end_step(self) -> None:
        """Let the clocks know that a step has ended, with the bytes of averages and of messages so far."""
        self.clocks.mark(self._averaged, self._messaged)

    def state_dict(self) -> dict[str, int]:
        return {"bytes_of_all": self.bytes_of_all, "wire_bytes": self.wire_bytes}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.bytes_of_all, self.wire_bytes = state["bytes_of_all"], state["wire_bytes"]

    def gather(self, values: Tensor) -> Tensor:
        """The workers' values, [k, ...] in this process, as [K, ...] everywhere; for logs and checks, never counted."""
        if self.world_size == self.members.processes:
            return values
        gathered = values.new_empty(self.num_workers, *values.shape[1:])
        dist.all_gather_into_tensor(gathered, values.contiguous(), group=self.members.cross_replica_group)
        return gathered

    def sum_(self, values: Tensor) -> Tensor:
        """Sum `values` over the processes, in place; for statistics of evaluations, never counted."""
        if self.world_size > 1:
            dist.all_reduce(values, group=self.group)
        return values

    def any(self, *flags: bool) -> list[bool]:
        """Whether any process has each of `flags`, the same answers on every process; never counted."""
        return [bool(flag) for flag in self.sum_(torch.tensor(flags, dtype=torch.int64, device=self.clocks.device))]

    def broadcast(self, value: Number) -> Number:
        """Rank 0's `value` on every process; never counted."""
        if self.world_size == 1:
            return value
        kind = type(value)
        agreed = torch.tensor(value, dtype=torch.float64, device=self.clocks.device)
        dist.broadcast(agreed, group=self.group, group_src=0)
        return kind(agreed.item())

    @torch.no_grad()
    def start_like_rank_0(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors of any dtypes and devices by those of rank 0; the same shapes everywhere; never counted."""
        for given in tensors if self.world_size > 1 else ():
            # Of an expanded tensor, what it has in memory: elements that share a place cannot be copied into.
            tensor = given[tuple(slice(None) if stride else slice(1) for stride in given.stride())]
            sent = tensor.detach().to(self.clocks.device).resolve_conj().resolve_neg().contiguous()
            dist.broadcast(sent.as_strided((sent.numel(),), (1,)).view(torch.uint8), group=self.group, group_src=0)
            tensor.copy_(sent)

    def row_of(self, rows: Tensor, worker: int) -> Tensor:
        """The row [P] of one worker on every process; counted as a message that this worker sends.

        It is the row itself where that is, and must not be changed.
        """
        index = worker - self.local.start
        row = rows[index] if 0 <= index < self.num_local else rows.new_empty(rows.shape[-1])
        with self.timed():
            if self.world_size > 1:
                dist.broadcast(row, group=self.group, group_src=worker // self.num_local)
                self.wire_bytes += row.nbytes
        self._count(row.nbytes)
        return row

    def barrier(self) -> None:
        if self.world_size > 1:
            dist.barrier(self.group)

    def _deliver(self, shards: Tensor, inbox: Tensor, sender: int, receiver: int, slot: int) -> list[dist.P2POp]:
        """Copy a local message, or return the send or receive operation that this process must post for it."""
        source, target = sender // self.num_local, receiver // self.num_local
        tag, own = slot * self.num_workers + receiver, self.members.replica_index
        group = self.members.cross_replica_group
        if source == target == own:
            inbox[receiver % self.num_local].copy_(shards[sender % self.num_local])
        elif shards.numel() == 0:  # a vector shorter than the number of processes of a worker
            return []
        elif source == own:
            self.wire_bytes += shards[0].nbytes if self._counting else 0
            return [dist.P2POp(dist.isend, shards[sender % self.num_local], group=group, tag=tag, group_peer=target)]
        elif target == own:
            place = inbox[receiver % self.num_local, : shards.shape[-1]]
            return [dist.P2POp(dist.irecv, place, group=group, tag=tag, group_peer=source)]
        return []

    @property
    def _scale(self) -> int:
        """The smallest power of two that is at least K, by which division is exact."""
        return 1 << (self.num_workers - 1).bit_length()

    def _scale_(self, total: Tensor) -> Tensor:
        """Divide the sum of the local rows, in place, so that the sum of all overflows only where their mean does."""
        return total.div_(self._scale) if self.num_workers > 1 else total

    def _mean_of_scaled_(self, total: Tensor) -> Tensor:
        """Make the sum of what `_scale_` has divided the mean over all workers, in place."""
        return total if self._scale == self.num_workers else total.div_(self.num_workers / self._scale)

    def _all_reduce(self, total: Tensor, name: str) -> None:
        """Replace a vector by its sum over the processes of other workers with this one's index, in place."""
        members = self.members
        hosts = self.world_size // members.processes
        if hosts == 1:
            return
        shard = members.shard(total)
        if shard.numel():
            sent = shard.nbytes
            if name == "default":
                dist.all_reduce(shard, group=members.cross_replica_group)
            else:
                sent = ALL_REDUCES[name](shard, members.replica_index, hosts, members.cross_replica_group)
            self.wire_bytes += sent if self._counting else 0
        self._gather_(total)

    def _gather_(self, total: Tensor) -> None:
        """Complete a vector of whose shards each process of the worker has its own, in place."""
        members = self.members
        if members.processes > 1:
            shard = members.shard(total)
            padding = members.shard_size(total.numel()) - shard.numel()
            total.copy_(members.gather(F.pad(shard, (0, padding)), total.numel()))

    def timed(self) -> AbstractContextManager[object]:
        """Count the seconds of the block as communication, unless its traffic is not counted."""
        return self.clocks.measure("communication") if self._counting else nullcontext()

    def _count(self, num_bytes: int) -> int:
        """Count bytes sent by all workers together, and return them; a single worker has nobody to send to."""
        counted = num_bytes if self._counting and self.num_workers > 1 else 0
        self.bytes_of_all += counted
        return counted


@dataclass(frozen=True)
class _LocalPlan:
    """The messages of an exchange: their number, and where those to the workers of a single process come from.

    `sources` [p k] are rows of an outbox [s k, P], in the order of an inbox [p, k, P]; `unused` are its empty slots.
    """

    slots: int
    messages: int
    sources: Tensor
    unused: Tensor

    def copy(self, outbox: Tensor, inbox: Tensor) -> None:
        """Fill the inbox [p, k, P] from the outbox [s, k, P] of all workers."""
        flat = inbox.flatten(0, 1)
        torch.index_select(outbox.flatten(0, 1), 0, self.sources.to(outbox.device), out=flat)
        if self.unused.numel():
            flat.index_fill_(0, self.unused.to(outbox.device), 0)


@lru_cache(maxsize=512)
def _local_plan(in_peers: _Slots, places: _Slots | None) -> _LocalPlan:
    slots, workers = max(map(len, in_peers)), len(in_peers)
    sources, unused = [], []
    for slot in range(slots):
        for receiver, peers in enumerate(in_peers):
            used = slot < len(peers)
            place = places[receiver][slot] if places and used else 0
            sources.append(place * workers + peers[slot] if used else 0)
            unused += [] if used else [slot * workers + receiver]
    messages = sum(map(len, in_peers))
    return _LocalPlan(slots, messages, *(torch.tensor(indices, dtype=torch.int64) for indices in (sources, unused)))


def _kind(inbox: Tensor) -> _Kind:
    return tuple(inbox.shape), inbox.dtype, inbox.device
