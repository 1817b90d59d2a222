"""The ranks of a run on one machine: processes that are started, watched and ended together.

They have the environment variables of torchrun's processes, but another launcher. Below torchrun's, a rank that has
finished waits until all have; if such a rank is killed, the launcher can wait for it forever. Here it just ends.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from torch.distributed import Store

from resync.launch.request import Place, Request, train
from resync.launch.stopping import passing_on, stop_asked, stop_code, terminate_children
from resync.processes.exit_code import exit_code
from resync.processes.signals import STOP, end_with_parent
from resync.processes.tcp_store import SERVED, join, serve
from resync.run import Run

_GRACE_SECONDS = 30.0
"""Time to end for the ranks that are left when one has failed."""
_POLL_SECONDS = 0.2


def run(run: Run, request: Request, place: Place) -> int:
    """Train with this machine's share of the ranks; return the exit code: 0, 1, 2, or if asked to stop 75 or 130.

    Raises ConnectionError if the machines of the run do not meet within the request's timeout.
    """
    if run.device == "cpu":
        # Imported once for all ranks, which are forked from this process. Where it is imported wandb makes folders for
        # temporary files, and removes them at the end of that process; a fork has no such end.
        for module in ("torch._dynamo", "resync.train", *(["wandb"] if run.log.wandb != "disabled" else [])):
            import_module(module)
    store, port = _met(place, timedelta(seconds=request.timeout))
    context = multiprocessing.get_context("fork" if run.device == "cpu" else "spawn")
    share = run.processes // len(place.hosts)
    ranks: dict[int, BaseProcess] = {}
    with passing_on(terminate_children):
        try:
            with _without_interrupt():
                for local in range(share):
                    rank = place.index * share + local
                    variables = {
                        "RANK": rank, "LOCAL_RANK": local, "GROUP_RANK": place.index, "WORLD_SIZE": run.processes,
                        "LOCAL_WORLD_SIZE": share, "MASTER_ADDR": place.address, "MASTER_PORT": port, SERVED: 1,
                    }  # fmt: skip
                    ranks[rank] = context.Process(target=_rank, args=(request, variables))  # type: ignore[attr-defined]
                    ranks[rank].start()
            code = _outcome(run, ranks)
        except KeyboardInterrupt:
            for each in ranks.values():
                each.kill()
            raise
        finally:
            _end(ranks)
    if code == os.EX_OK:
        _await_other_machines(store, place, request.timeout)
    return code


@contextmanager
def _without_interrupt() -> Iterator[None]:
    """Start processes to which Ctrl-C means nothing: the terminal sends it to all, and this one passes it on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _rank(request: Request, variables: Mapping[str, object]) -> None:
    """Train one rank, and exit with its code."""
    end_with_parent(signal.SIGKILL)
    for number in STOP:
        signal.signal(number, signal.SIG_DFL)
    if stop_asked():
        sys.exit(os.EX_TEMPFAIL)
    os.environ.update({name: str(value) for name, value in variables.items()})
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    # Read here because a run cannot be sent to a spawned process: its parts have classes made from declarations.
    sys.exit(exit_code(lambda: train(request.run, request)))


def _outcome(run: Run, ranks: Mapping[int, BaseProcess]) -> int:
    """The exit code of all ranks together: that of the first one that fails, or when all have ended.

    A rank that is told to stop before it has met the others does not come, and those that wait for it cannot notice.
    """
    first_stopped: float | None = None
    while True:
        codes = {rank: process.exitcode for rank, process in ranks.items()}
        failed = {rank: code for rank, code in codes.items() if code not in (None, os.EX_OK, os.EX_TEMPFAIL)}
        if failed:
            # One that was killed is the reason why another one fails at the same time.
            rank = min(failed, key=lambda each: (failed[each] or 0) >= 0)
            if stop_asked() and failed[rank] in (-signal.SIGTERM, -signal.SIGUSR1):
                return stop_code()  # before it could handle the signal
            print(f"resync: error: {run.id}: rank {rank} ended with exit code {failed[rank]}", file=sys.stderr)
            return 2 if failed[rank] == 2 else 1
        if None not in codes.values():
            return stop_code() if os.EX_TEMPFAIL in codes.values() else os.EX_OK
        if os.EX_TEMPFAIL in codes.values():
            first_stopped = first_stopped or time.monotonic()
            if time.monotonic() - first_stopped > _GRACE_SECONDS:
                return stop_code()
        # With a limit, because a process that a rank has forked keeps its sentinel open.
        wait([process.sentinel for rank, process in ranks.items() if codes[rank] is None], _POLL_SECONDS)


def _end(ranks: Mapping[int, BaseProcess]) -> None:
    """Ask the ranks that live to end, and kill those that do not."""
    living = {rank: process for rank, process in ranks.items() if process.is_alive()}
    for process in living.values():
        process.terminate()
    deadline = time.monotonic() + _GRACE_SECONDS
    for rank, process in living.items():
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            print(f"resync: rank {rank} is killed: it has not ended within {_GRACE_SECONDS:g} s", file=sys.stderr)
            process.kill()
            process.join()


def _met(place: Place, timeout: timedelta) -> tuple[Store, int]:
    """The store of the run, which the first machine serves until all have ended, and its port."""
    machines = len(place.hosts)
    if place.index == 0:
        store = serve(place.address, place.port, machines, timeout)
        return store, store.port
    return join(place.address, place.port, machines, timeout), place.port


def _await_other_machines(store: Store, place: Place, timeout: float) -> None:
    """Serve the store until the ranks of all machines have ended well; those of this one have."""
    ended = [f"ended/{index}" for index in range(len(place.hosts))]
    deadline = time.monotonic() + timeout
    with suppress(RuntimeError):  # the first machine has ended: it has failed, or waited long enough
        store.set(ended[place.index], "")
        while place.index == 0 and not store.check(ended) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
