"""Replicas of an elastic training as processes that a test kills and starts again, and their lighthouse."""

import gc
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

LIMIT = 240
"""Seconds after which a test that still waits fails."""
_CONTEXT = multiprocessing.get_context("fork")


class Replicas:
    """Processes by name, each running `function(name, lighthouse, *arguments)`; all are ended with the block."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, min_replicas: int = 2) -> None:
        self.function, self.arguments = function, arguments
        self.running: dict[str, tuple[Any, Connection]] = {}
        self.port = 0
        self.new_lighthouse(min_replicas)

    def start(self, *names: str) -> None:
        for name in names:
            receiver, sender = _CONTEXT.Pipe(duplex=False)
            address = f"127.0.0.1:{self.port}"
            process = _CONTEXT.Process(target=_run, args=(sender, self.function, name, address, self.arguments))
            process.start()
            sender.close()
            self.running[name] = process, receiver

    def next(self) -> tuple[str, Any]:
        """What some replica says next; None if it has died."""
        by_pipe = {receiver: name for name, (_, receiver) in self.running.items()}
        ready = wait(list(by_pipe), LIMIT)
        assert ready, f"{sorted(self.running)} said nothing for {LIMIT} s"
        receiver = ready[0]
        assert isinstance(receiver, Connection)
        name = by_pipe[receiver]
        try:
            error, value = receiver.recv()
        except EOFError:
            self.running.pop(name)[0].join()
            return name, None
        assert error is None, f"replica {name} failed:\n{error}"
        return name, value

    def results(self, restart: tuple[str, ...] = ()) -> dict[str, Any]:
        """What every replica says at its end; each of `restart` is started again once when it has died."""
        found, again = {}, list(restart)
        while self.running:
            name, value = self.next()
            if value is not None:
                found[name] = value
            elif name in again:
                again.remove(name)
                self.start(name)
        assert not again, f"{again} did not die"
        return found

    def end_lighthouse(self) -> None:
        self._lighthouse.kill()
        self._lighthouse.join()

    def new_lighthouse(self, min_replicas: int = 2) -> None:
        """At the address of the one before, if there was one."""
        receiver, sender = _CONTEXT.Pipe(duplex=False)
        self._lighthouse = _CONTEXT.Process(target=_serve, args=(sender, min_replicas, self.port))
        self._lighthouse.start()
        assert receiver.poll(LIMIT)
        self.port = receiver.recv()

    def end(self) -> None:
        for process, _ in self.running.values():
            process.kill()
        self.end_lighthouse()


@contextmanager
def replicas(function: Callable[..., Any], *arguments: Any, min_replicas: int = 2) -> Iterator[Replicas]:
    # Imported once, and before any thread of torchft exists, so that children can be forked at any time.
    for module in ("torch._dynamo", "torchft.checkpointing.http_transport", "torchft.process_group"):
        import_module(module)
    gc.freeze()
    found = Replicas(function, *arguments, min_replicas=min_replicas)
    try:
        yield found
    finally:
        found.end()


def _serve(sender: Connection, min_replicas: int, port: int) -> None:
    from torchft.coordination import LighthouseServer

    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silent, stream)
    lighthouse = LighthouseServer(
        bind=f"127.0.0.1:{port}", min_replicas=min_replicas, join_timeout_ms=5000, quorum_tick_ms=20,
        heartbeat_timeout_ms=1000,
    )  # fmt: skip
    sender.send(int(lighthouse.address().rsplit(":", 1)[1]))
    signal.pause()


def _run(sender: Connection, function: Callable[..., Any], name: str, lighthouse: str, arguments: Any) -> None:
    torch.set_num_threads(1)
    try:
        sender.send((None, function(name, lighthouse, *arguments)))
    except BaseException:
        sender.send((traceback.format_exc(), None))
    os._exit(0)  # the threads of torchft
