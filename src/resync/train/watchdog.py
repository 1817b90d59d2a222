"""No hang lasts: a process that makes no step says where it is and who is silent, and ends."""

import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

TICK_SECONDS = 5.0
"""Seconds between two looks of the watchdog, at most; a quarter of a shorter time-out."""


class Watchdog:
    """Ends this process with exit code 1 when `beat` has not been called for `timeout` seconds.

    Before, it writes the stacks of all threads to the standard error stream, and which ranks do not even answer:
    those are stopped, dead or cut off; the others wait for them. Ranks ask each other through torch's store, where
    there is more than one.

    `record` is called with the reason; it has a tick to keep it.

    Time in which this process itself was stopped does not count. Where no thread can run Python, only the stacks
    are written.
    """

    def __init__(
        self,
        timeout: float,
        rank: int,
        world_size: int,
        store: dist.Store | None = None,
        record: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.timeout = timeout
        self.rank = rank
        self.world_size = world_size
        self.store = store
        self.record = record
        self.steps = 0
        self.tick = min(TICK_SECONDS, timeout / 4)
        self._idle_ticks = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    @contextmanager
    def watching(self) -> Iterator["Watchdog"]:
        """Watch this process during the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._thread.join()
            faulthandler.cancel_dump_traceback_later()

    def beat(self, steps: int) -> None:
        """`steps` steps are complete."""
        self.steps = steps
        self._idle_ticks = 0

    def _watch(self) -> None:
        while not self._ended.wait(self.tick):
            faulthandler.dump_traceback_later(self.timeout + 2 * self.tick, exit=False)
            self._answer()
            self._idle_ticks += 1
            if self._idle_ticks * self.tick > self.timeout:
                faulthandler.dump_traceback(all_threads=True)
                self._end(f"no step for {self.timeout:g} s{self._silent()}")

    def _answer(self) -> None:
        """Say to ranks that ask that this one runs."""
        if self.store is None:
            return
        try:
            if self.store.check(["roll_call"]):
                self.store.set(f"here/{self.rank}", "")
        except RuntimeError:  # its server has ended or is stopped; the time-out is what ends this process
            return

    def _silent(self) -> str:
        """Ask all ranks, and name those that do not answer within two ticks."""
        if self.store is None:
            return ""
        try:
            self.store.set("roll_call", "")
            self.store.set(f"here/{self.rank}", "")
            threading.Event().wait(2 * self.tick)
            silent = [rank for rank in range(self.world_size) if not self.store.check([f"here/{rank}"])]
        except RuntimeError as error:
            return f"; no answer from the store at {os.environ['MASTER_ADDR']}: {error}"
        return f"; no answer from rank {', '.join(map(str, silent))}" if silent else "; all ranks answer"

    def _end(self, reason: str) -> None:
        text = f"rank {self.rank} ends after step {self.steps}: {reason}"
        print(f"resync: {text}", file=sys.stderr, flush=True)
        # It writes to a disk that may be what hangs.
        writer = threading.Thread(target=self.record, args=(text,), daemon=True)
        writer.start()
        writer.join(self.tick)
        os._exit(1)


def roll_call_store(timeout: float) -> dist.Store:
    """A connection of its own to the store of the process group, for `Watchdog`: the group may block the first."""
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        timeout=timedelta(seconds=min(timeout, TICK_SECONDS)),
        wait_for_workers=False,
    )
    return dist.PrefixStore("watchdog", store)
