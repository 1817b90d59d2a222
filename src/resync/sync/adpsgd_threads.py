"""Asynchronous decentralised parallel SGD on real processes: pairs average in a background thread."""

import threading
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from resync.formulas.topology import check_pairs, partner, peer_list
from resync.sync.algorithm import Algorithm, Training
from resync.sync.options import adpsgd

_ASK, _ROW, _ANSWER = 1, 2, 3
"""Message tags of one average: the request, the row of the active worker, the row of the passive worker."""
_AVERAGE, _END = 0, 1


class AsynchronousPairs(Algorithm):
    """AD-PSGD (Lian et al. 2018): no worker waits for the gradient of another.

        training: compute a gradient at the worker's own parameters; x_r = optimizer(x_r, gradient)
        meanwhile: x_r = x_s = (x_r + x_s) / 2, once per step of the active (odd) worker of the pair

    Both partners add half of the difference of the rows that they exchanged, whatever the optimizer has done since, so
    that the sum over the workers is conserved. A step that ends while the previous average is still running is averaged
    together with the next. Every process hosts one worker; messages go over gloo and are staged on the CPU.

    `close` is collective: it ends the thread of this process when all of its partners have closed too.

    Raises ValueError for several workers in a process, and for a topology without pairs.
    """

    def __init__(self, training: Training, options: adpsgd.ADPSGD) -> None:
        super().__init__(training)
        size = self.transport.num_workers
        check_pairs(options.topology, size)
        if self.workers.num_local != 1:
            raise ValueError(
                f"asynchronous AD-PSGD needs one worker per process, found {self.workers.num_local}, "
                "allowed: simulated AD-PSGD"
            )
        self.topology = options.topology
        self.rank = self.transport.rank
        self.averages = 0
        self.published = self.rows[0].clone()
        self.failure: BaseException | None = None
        self._lock = threading.Lock()
        self._due = threading.Semaphore(0)
        self._closing = False
        self._group = dist.new_group(backend="gloo") if size > 1 else None
        active = self.rank % 2 == 1
        self._thread = threading.Thread(
            target=self._guarded, args=(self._ask if active else self._answer,), daemon=True
        )
        if self._group is not None:
            self.transport.communication_is_known = False
            self._thread.start()

    def after_backward(self) -> None:
        """Load the parameters as partners have left them; partners wait until the step is done."""
        if self.failure is not None:
            raise RuntimeError(f"rank {self.rank}: the averaging thread ended at step {self.steps}") from self.failure
        self._lock.acquire()
        self.rows[0].copy_(self.published)

    def after_step(self, lr: float) -> bool:
        """Publish the step; an active worker requests an average."""
        self.published.copy_(self.rows[0])
        self._lock.release()
        self._due.release()
        return super().after_step(lr)

    def close(self) -> None:
        """End the thread; the parameters are those of the last average."""
        self._closing = True
        self._due.release()
        if self._group is not None and self._thread.is_alive():
            self._thread.join()
        self.rows[0].copy_(self.published)
        if self.failure is not None:
            raise RuntimeError(f"rank {self.rank}: the averaging thread failed") from self.failure

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Exception as failure:
            self.failure = failure

    def _ask(self) -> None:
        """The thread of an active worker."""
        size = self.transport.num_workers
        while self._wait_for_a_step():
            # Steps made in the meantime share one average.
            while self._due.acquire(blocking=False):
                pass
            other = partner(self.topology, self.rank, size, self.averages)
            assert other is not None
            mine = self._snapshot()
            self._send(torch.tensor([_AVERAGE]), other, _ASK)
            self._send(mine, other, _ROW)
            theirs = self._receive(torch.empty_like(mine), other, _ANSWER)
            self._move(mine, theirs)
        for other in peer_list(self.topology, self.rank, size):
            self._send(torch.tensor([_END]), other, _ASK)

    def _wait_for_a_step(self) -> bool:
        """True when there is a step to average after, False when there will be no more."""
        self._due.acquire()
        return not self._closing

    def _answer(self) -> None:
        """The thread of a passive worker: answers every request until all of its peers have ended."""
        waiting = len(peer_list(self.topology, self.rank, self.transport.num_workers))
        while waiting:
            ask = torch.empty(1, dtype=torch.int64)
            other = dist.recv(ask, group=self._group, tag=_ASK)
            if int(ask) == _END:
                waiting -= 1
                continue
            theirs = self._receive(torch.empty_like(self.published, device="cpu"), other, _ROW)
            mine = self._snapshot()
            self._send(mine, other, _ANSWER)
            self._move(mine, theirs)

    def _snapshot(self) -> Tensor:
        with self._lock:
            return self.published.detach().to("cpu", copy=True)

    def _move(self, mine: Tensor, theirs: Tensor) -> None:
        half = theirs.sub_(mine).div_(2).to(self.published.device)
        with self._lock, torch.no_grad():
            self.published.add_(half)
        self.averages += 1
        self.transport.count_message(mine)

    def _send(self, message: Tensor, other: int, tag: int) -> None:
        dist.send(message, other, group=self._group, tag=tag)

    def _receive(self, message: Tensor, other: int, tag: int) -> Tensor:
        dist.recv(message, other, group=self._group, tag=tag)
        return message

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; the published parameters become the workers' current ones."""
        super().load_state_dict(state)
        with self._lock:
            self.published.copy_(self.rows[0])

    def own_rows(self) -> Tensor:
        """The parameters as partners have left them."""
        with self._lock:
            return self.published.clone().unsqueeze(0)

    def to_consensus(self, rows: Tensor) -> None:
        """The mean of the parameters as partners have left them."""
        with self._lock:
            rows[0].copy_(self.published)
        self.transport.mean_(rows)
