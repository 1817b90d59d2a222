"""Asynchronous decentralised parallel SGD on real processes: pairs average in a background thread."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from resync.base.errors import UserError
from resync.base.torch_private import time_limit
from resync.workers.formulas.topology import partner, peer_list
from resync.workers.sync.algorithm import Algorithm, Training
from resync.workers.sync.options.pairs import ADPSGD

_ASK, _ROW, _ANSWER = 1, 2, 3
"""Message tags of one average: the request, the row of the active worker, the row of the passive worker."""
_AVERAGE, _END = 0, 1
"""What the rank in a request wants."""
_EVER = timedelta(days=365)
"""How long a passive worker waits for a request: none is owed while the active ones do not step."""


class AsynchronousPairs(Algorithm):
    """AD-PSGD (Lian et al. 2018): no worker waits for the gradient of another.

        training: compute a gradient at the worker's own parameters; x_r = optimizer(x_r, gradient)
        meanwhile: x_r = x_s = (x_r + x_s) / 2, once per step of the active (odd) worker of the pair

    Both partners add half of the difference of the rows that they exchanged, and a step adds what the optimizer has
    changed, whatever has happened in between, so that the sum over the workers is conserved. A step that ends while the
    previous average is still running is averaged together with the next. Every process hosts one worker; messages go
    over gloo and are staged on the CPU. The averages between two steps depend on the speed of the machines, so that no
    two runs have the same bits. Every rank makes the same number of steps of its own, at the learning rates of its own
    count, whereas the original counts iterations of all workers together, so that a slow worker makes fewer of them.

    `consensus`, `state_dict`, `load_state_dict` and `close` are collective: the workers meet. `close` ends the thread
    of this process when all of its partners have closed too. If a message of an average that has begun does not come
    within the time limit of the process group, the next of these calls or the next step fails and names the rank it
    was expected from. A request may come at any time, until `close` has waited for so long.

    Raises ValueError for several workers in a process, and for an odd number of workers.
    """

    per_worker = ("published", "averages")
    asynchronous: ClassVar[bool] = True

    def __init__(self, training: Training, options: ADPSGD) -> None:
        super().__init__(training)
        if self.workers.num_local != 1:
            raise UserError(
                f"asynchronous AD-PSGD needs one worker per process, found {self.workers.num_local}, "
                "allowed: simulated AD-PSGD"
            )
        self.topology = options.topology
        self.rank = self.transport.rank
        self.peers = peer_list(self.topology, self.rank, self.transport.num_workers)
        self.active = self.rank % 2 == 1
        self.waiting = set(self.peers)
        self.averages = torch.zeros(1, dtype=torch.int64)
        # x, and what it was when the optimizer began its step: `rows` are the worker's own, without averages since.
        self.published = self.rows.clone()
        self.loaded = self.rows.clone()
        self.failure: Exception | None = None
        self._changed = threading.Condition()
        self._due = self._busy = self._closing = False
        self._thread = threading.Thread(
            target=self._run_guarded, args=(self._ask if self.active else self._answer,), daemon=True
        )
        if self.transport.num_workers > 1:
            self.transport.communication_is_known = False
            self.limit: timedelta = time_limit(self.rows.device)
            self._group = dist.new_group(backend="gloo", timeout=self.limit)
            self._thread.start()

    def after_backward(self) -> None:
        self._check()
        with self._changed:
            self.loaded.copy_(self.published)
        self.rows.copy_(self.loaded)

    def after_step(self, lr: float) -> bool:
        """Publish what the step has changed; an active worker requests an average."""
        change = self.loaded.neg_().add_(self.rows)
        with self._changed:
            self.published.add_(change)
            self._due = self.active
            self._changed.notify_all()
        return super().after_step(lr)

    def close(self) -> None:
        """End the thread; the parameters are those of the last average."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(None if self.active else self.limit.total_seconds())
        self._check()
        if self._thread.is_alive():
            raise RuntimeError(f"rank {self.rank}: the averaging thread has not ended at step {self.steps}: "
                               f"no message from rank {_ranks(self.waiting)} within {self.limit}")  # fmt: skip
        self.rows.copy_(self.published)

    def own_rows(self) -> Tensor:
        with self._changed:
            return self.published.clone()

    def to_consensus(self, rows: Tensor) -> None:
        with self._quiet():
            rows.copy_(self.published)
        self.transport.mean_(rows)

    def state_dict(self) -> dict[str, Any]:
        """As for every algorithm, between two averages; collective."""
        with self._quiet():
            return super().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with self._changed:
            super().load_state_dict(state)
        self.transport.barrier()  # a request that came before would be answered with what the state overwrites

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """No pair averages during the block, and none has been requested that is not done."""
        self._wait_for_averages()
        self.transport.barrier()
        self._wait_for_averages()  # a passive worker adds its half after its partner has the answer
        yield
        self.transport.barrier()

    def _wait_for_averages(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.failure or not (self._due or self._busy))
        self._check()

    def _check(self) -> None:
        if self.failure is not None:
            text = f"rank {self.rank}: the averaging thread has ended at step {self.steps}: {self.failure}"
            raise RuntimeError(text) from self.failure

    def _run_guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as failure:
            with self._changed:
                self.failure = failure
                self._changed.notify_all()

    def _ask(self) -> None:
        """The thread of an active worker."""
        while self._wait_for_a_step():
            other = partner(self.topology, self.rank, self.transport.num_workers, int(self.averages))
            assert other is not None
            mine = self._snapshot()
            self._send(torch.tensor([_AVERAGE, self.rank]), other, _ASK)
            self._send(mine, other, _ROW)
            self._move(mine, self._receive(mine, other, _ANSWER))
        for other in self.peers:
            self._send(torch.tensor([_END, self.rank]), other, _ASK)

    def _wait_for_a_step(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._due or self._closing)
            self._busy, self._due = self._due, False
            return self._busy

    def _answer(self) -> None:
        """The thread of a passive worker: answers every request until all of its peers have ended."""
        while self.waiting:
            ask = torch.empty(2, dtype=torch.int64)
            self._wait(dist.irecv(ask, group=self._group, tag=_ASK), self.waiting, _EVER)
            wanted, other = ask.tolist()
            if wanted == _END:
                self.waiting.remove(other)
                continue
            with self._changed:
                self._busy = True
            mine = self._snapshot()
            theirs = self._receive(mine, other, _ROW)
            self._send(mine, other, _ANSWER)
            self._move(mine, theirs)

    def _snapshot(self) -> Tensor:
        with self._changed:
            return self.published.detach().to("cpu", copy=True)

    def _move(self, mine: Tensor, theirs: Tensor) -> None:
        half = theirs.div_(2).sub_(mine, alpha=0.5).to(self.published.device)
        self.transport.count_message(mine)
        with self._changed:
            self.published.add_(half)
            self.averages += 1
            self._busy = False
            self._changed.notify_all()

    def _send(self, message: Tensor, other: int, tag: int) -> None:
        self._wait(dist.isend(message, other, group=self._group, tag=tag), {other}, self.limit)

    def _receive(self, like: Tensor, other: int, tag: int) -> Tensor:
        message = torch.empty_like(like)
        self._wait(dist.irecv(message, other, group=self._group, tag=tag), {other}, self.limit)
        return message

    def _wait(self, request: dist.Work, others: set[int], limit: timedelta) -> None:
        try:
            request.wait(limit)
        except RuntimeError as error:
            raise RuntimeError(f"no message from or to rank {_ranks(others)}: {error}") from error


def _ranks(others: set[int]) -> str:
    return ", ".join(map(str, sorted(others)))
