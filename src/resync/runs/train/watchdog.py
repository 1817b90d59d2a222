"""Watchdog against hangs: a process without progress reports where it is and which ranks are silent, and ends."""

import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch.distributed as dist

TICK_SECONDS = 5.0
"""Longest interval between two checks, in seconds; a quarter of the timeout if that is shorter."""


class Watchdog:
    """Ends this process with exit code 1 when `beat` has not been called for `timeout` seconds.

    Before, it writes the stacks of all threads to the standard error stream, and names the ranks that do not answer:
    those are stopped, dead or disconnected, and the others are waiting for them. If there are several ranks, they ask
    each other through torch's store. `connect` opens a connection to it within so many seconds or raises RuntimeError,
    and is called again. A thread of its own calls it, so that ranks are found that stop before all have joined, and
    that the timeout holds even if the store's own process is stopped, for whose answer torch waits without a limit.

    `record` is called with the reason and has one tick to save it.

    Time in which this process itself was stopped does not count. If no thread can run Python, only the stacks are
    written.
    """

    def __init__(
        self,
        timeout: float,
        rank: int,
        world_size: int,
        connect: Callable[[float], dist.Store] | None = None,
        record: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.timeout = timeout
        self.rank = rank
        self.world_size = world_size
        self.connect = connect
        self.record = record
        self.steps: int | None = None
        self.tick = min(TICK_SECONDS, timeout / 4)
        self._store: dist.Store | None = None
        self._idle = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._answering = threading.Thread(target=self._answer, name="roll call", daemon=True)

    @contextmanager
    def watching(self) -> Iterator["Watchdog"]:
        self._thread.start()
        self._answering.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._thread.join()
            self._answering.join(self.tick)
            faulthandler.cancel_dump_traceback_later()

    def beat(self, steps: int) -> None:
        """Report that all ranks have joined and `steps` steps are complete."""
        self.steps = steps
        self._idle = 0.0

    def _watch(self) -> None:
        while not self._ended.wait(self.tick):
            faulthandler.dump_traceback_later(self.timeout + 2 * self.tick, exit=False)
            self._idle += self.tick
            if self._idle > self.timeout:
                faulthandler.dump_traceback(all_threads=True)
                missed = "not all ranks have joined after" if self.connect and self.steps is None else "no step for"
                self._end(f"{missed} {self.timeout:g} s{self._silent()}")

    def _joined_store(self) -> dist.Store | None:
        """The connection to the store, None if there is a single rank. Raises RuntimeError as `connect` does."""
        if self._store is None and self.connect is not None:
            self._store = self.connect(self.tick)
        return self._store

    def _answer(self) -> None:
        while self.connect and not self._ended.wait(self.tick):
            with suppress(RuntimeError):  # its server has not started, or has ended; the timeout will end this process
                store = self._joined_store()
                if store and store.check(["roll_call"]):
                    store.set(f"here/{self.rank}", "")

    def _silent(self) -> str:
        """Ask all ranks, and name those that do not answer within two ticks."""
        if self.connect is None:
            return ""
        answers = [f"; no answer from the store at {os.environ['MASTER_ADDR']}, which rank 0 or its launcher serves"]
        asking = threading.Thread(target=lambda: answers.append(self._ask_all()), daemon=True)
        asking.start()
        asking.join(4 * self.tick)
        return answers[-1]

    def _ask_all(self) -> str:
        try:
            store = self._joined_store()
            assert store
            store.set("roll_call", "")
            store.set(f"here/{self.rank}", "")
            threading.Event().wait(2 * self.tick)
            silent = [rank for rank in range(self.world_size) if not store.check([f"here/{rank}"])]
        except RuntimeError as error:
            return f"; no answer from the store at {os.environ['MASTER_ADDR']}: {error}"
        return f"; no answer from rank {', '.join(map(str, silent))}" if silent else "; all ranks answer"

    def _end(self, reason: str) -> None:
        text = f"rank {self.rank} ends after step {self.steps or 0}: {reason}"
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
        timeout=timedelta(seconds=timeout),
        wait_for_workers=False,
    )
    return dist.PrefixStore("watchdog", store)
