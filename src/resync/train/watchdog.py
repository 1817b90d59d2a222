"""Watchdog against hangs: a process without progress reports where it is and which ranks are silent, and ends."""

import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

TICK_SECONDS = 5.0
"""Longest interval between two checks, in seconds; a quarter of the timeout if that is shorter."""


class Watchdog:
    """Ends this process with exit code 1 when `beat` has not been called for `timeout` seconds.

    Before, it writes the stacks of all threads to the standard error stream, and names the ranks that do not answer:
    those are stopped, dead or disconnected, and the others are waiting for them. If there are several ranks, they ask
    each other through torch's store.

    `record` is called with the reason and has one tick to save it.

    Time in which this process itself was stopped does not count. If no thread can run Python, only the stacks are
    written.
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
        """Report that `steps` steps are complete."""
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
        """Answer other ranks that ask whether this one is running."""
        if self.store is None:
            return
        try:
            if self.store.check(["roll_call"]):
                self.store.set(f"here/{self.rank}", "")
        except RuntimeError:  # its server has ended or is stopped; the timeout will end this process
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
        # In a thread, because the disk it writes to may be the reason for the hang.
        writer = threading.Thread(target=self.record, args=(text,), daemon=True)
        writer.start()
        writer.join(self.tick)
        os._exit(1)


def roll_call_store(timeout: float) -> dist.Store:
    """A separate connection to the store of the process group, for `Watchdog`: the group may block its own."""
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        timeout=timedelta(seconds=min(timeout, TICK_SECONDS)),
        wait_for_workers=False,
    )
    return dist.PrefixStore("watchdog", store)
