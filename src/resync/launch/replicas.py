"""An elastic run on this machine: a lighthouse, and a process for each worker, which is started again when it dies."""

import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from resync.errors import UserError
from resync.launch.fork import GRACE_SECONDS, POLL_SECONDS, end, without_interrupt
from resync.launch.request import Request, train
from resync.launch.stopping import passing_on, stop_asked, stop_code
from resync.processes.exit_code import MISTAKE, exit_code
from resync.processes.signals import STOP, end_with_parent
from resync.results import state
from resync.results.summary import has_results
from resync.run import Run

_CONTEXT = multiprocessing.get_context("fork")
_START_SECONDS = 60.0
_MODULES = "checkpointing.http_transport", "coordination", "process_group"


def run(run: Run, request: Request) -> int:
    """Train with a process for each worker; return the exit code: 0, 1, 2, or if asked to stop 75 or 130.

    A worker that dies is started again `max_restarts` times; the run has failed when too few are left. When all have
    ended, as after a request to stop, the next start continues from the newest checkpoint of a worker.
    """
    try:
        # Imported once, and before any thread of torchft exists, so that workers can be forked at any time.
        for module in ("torch._dynamo", "resync.train", *(f"torchft.{name}" for name in _MODULES)):
            import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(f"elastic: found no {error.name}, allowed: torchft >= 0.2 (make trainers)") from None
    machine = _Machine(run, request)
    with passing_on():
        try:
            code = machine.outcome()
        finally:
            end(machine.workers)
            machine.lighthouse.kill()
    if stop_asked() and code:
        written = [int(each.name[4:]) for each in request.out.glob("workers/*/checkpoint/step*[0-9]")]
        reason = "asked to stop: the next start continues from the newest checkpoint of a worker"
        state.record(request.out, run, "stopped", max(written, default=0), reason)
    return code


class _Machine:
    """The processes of a run: its lighthouse, and those of its workers that live, by number."""

    def __init__(self, run: Run, request: Request) -> None:
        self.run, self.request = run, request
        self.workers: dict[int, BaseProcess] = {}
        self.lives = Counter[int]()
        self.done = 0
        self.port = 0
        assert run.elastic
        self.needed, self.waits = run.elastic.needed(run.workers), run.elastic.timeout_seconds
        self.lighthouse = self._lighthouse()

    def outcome(self) -> int:
        """Start the workers; the exit code of all together, when they have ended or too few are left."""
        last = float("inf")
        for worker in range(self.run.workers):
            self._start(worker)
        while self.workers and time.monotonic() < last:
            wait([process.sentinel for process in self.workers.values()], POLL_SECONDS)
            if not self.lighthouse.is_alive() and not stop_asked():
                self.lighthouse = self._lighthouse()
            for worker, process in list(self.workers.items()):
                if process.exitcode is None:
                    continue
                del self.workers[worker]
                if process.exitcode == MISTAKE:
                    return MISTAKE
                self.done += process.exitcode == os.EX_OK
                if process.exitcode and not stop_asked():
                    self._died(worker, process.exitcode)
            if self.done and last == float("inf"):  # those that are left have the same steps, or came too late
                last = time.monotonic() + GRACE_SECONDS
            if not self.done and len(self.workers) < self.needed and not stop_asked():
                left = f"{len(self.workers)} workers are left, allowed: at least {self.needed}"
                print(f"resync: error: {self.run.id}: {left}", file=sys.stderr)
                return 1
        if has_results(self.request.out, self.run.hash):
            return os.EX_OK
        return stop_code() if stop_asked() else 1

    def _died(self, worker: int, code: int) -> None:
        again = not self.done and self.lives[worker] <= self.request.max_restarts
        print(f"resync: {self.run.id}: worker {worker} ended with exit code {code}, "
              f"{'is started again' if again else 'stays away'}", flush=True)  # fmt: skip
        if again:
            self._start(worker)

    def _start(self, worker: int) -> None:
        self.lives[worker] += 1
        place = f"127.0.0.1:{self.port}"
        self.workers[worker] = _CONTEXT.Process(target=_worker, args=(self.run, self.request, worker, place))
        with without_interrupt():
            self.workers[worker].start()

    def _lighthouse(self) -> BaseProcess:
        """A lighthouse at the same port as the one before."""
        receiver, sender = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(target=_serve, args=(sender, self.needed, self.port, round(1000 * self.waits)))
        process.start()
        sender.close()
        if not receiver.poll(_START_SECONDS):
            raise ConnectionError(f"no lighthouse within {_START_SECONDS:g} s")
        self.port = receiver.recv()
        return process


def _serve(sender: Connection, min_replicas: int, port: int, waits: int) -> None:
    """Be the lighthouse until this process is killed.

    Workers ask for `waits` ms: before that a late one must be given up, and a silent one long before.
    """
    from torchft.coordination import LighthouseServer

    end_with_parent(signal.SIGKILL)
    for number in (*STOP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # a line for every question
        os.dup2(silent, stream)
    lighthouse = LighthouseServer(
        bind=f"127.0.0.1:{port}", min_replicas=min_replicas, join_timeout_ms=waits // 2, quorum_tick_ms=20,
        heartbeat_timeout_ms=waits // 5,
    )  # fmt: skip
    sender.send(int(lighthouse.address().rsplit(":", 1)[1]))
    while True:
        signal.pause()


def _worker(run: Run, request: Request, worker: int, lighthouse: str) -> None:
    """Train one worker, with a log of its own, and exit with its code."""
    from resync.train.elastic import name_of
    from resync.train.replica import LIGHTHOUSE

    end_with_parent(signal.SIGKILL)
    for number in STOP:
        signal.signal(number, signal.SIG_DFL)
    folder = Path(request.out / "workers" / name_of(worker))
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout = sys.stderr = (folder / "train.log").open("a", buffering=1)
    for stream in (1, 2):
        os.dup2(sys.stdout.fileno(), stream)
    os.environ |= {"RANK": str(worker), LIGHTHOUSE: lighthouse}
    os._exit(exit_code(lambda: train(run, request)))  # torchft leaves threads
