"""The launcher `fork`: the ranks of a run on the CPU of one machine, forked from a process that has imported torch.

They have the environment variables of torchrun's processes, and start seconds earlier, since no rank imports anything.
"""

import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from torch.distributed import TCPStore

from resync.base.processes.exit_code import exit_code
from resync.base.processes.signals import STOP, end_with_parent
from resync.runs.launch.request import Request, train
from resync.runs.launch.stopping import code_of_ranks, passing_on, stop_asked, stop_code
from resync.runs.run import Run

_GRACE_SECONDS = 30.0
"""Time to end for the ranks that are left when one has failed."""
_POLL_SECONDS = 0.2


def run(run: Run, request: Request) -> int:
    """Train with all ranks; return the exit code: 0, 1, 2, or if asked to stop 75 or 130."""
    for module in modules(run):
        import_module(module)
    context = multiprocessing.get_context("fork")
    # Given no socket, torch would listen on all interfaces, and whoever reaches its store can disturb the run.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        store = TCPStore("127.0.0.1", port, None, True, wait_for_workers=False, master_listen_fd=listener.detach())
    ranks: dict[int, BaseProcess] = {}
    with passing_on():
        try:
            with _without_interrupt():
                for rank in range(run.processes):
                    variables = {
                        "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": run.processes,
                        "LOCAL_WORLD_SIZE": run.processes, "MASTER_ADDR": store.host, "MASTER_PORT": port,
                        "TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 0,
                    }  # fmt: skip
                    ranks[rank] = context.Process(target=_rank, args=(run, request, variables))
                    ranks[rank].start()
            return _outcome(run, ranks)
        finally:
            _end(ranks)


def modules(run: Run) -> list[str]:
    """What takes long to import, and is imported once for all ranks, and by a warm process once for all runs.

    Where it is imported wandb makes folders for temporary files, and removes them at the end of that process; a fork
    has no such end.
    """
    needed = {"wandb": run.log.wandb != "disabled", "deepspeed": run.engine.name == "deepspeed"}
    # What is missing the rank says that needs it.
    return ["torch._dynamo", "resync.runs.train", *(name for name in needed if needed[name] and find_spec(name))]


@contextmanager
def _without_interrupt() -> Iterator[None]:
    """Start processes to which Ctrl-C means nothing: the terminal sends it to all, and this one passes it on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _rank(run: Run, request: Request, variables: Mapping[str, object]) -> None:
    """Train one rank, and exit with its code."""
    end_with_parent(signal.SIGKILL)
    for number in STOP:
        signal.signal(number, signal.SIG_DFL)
    if stop_asked():
        sys.exit(os.EX_TEMPFAIL)
    os.environ.update({name: str(value) for name, value in variables.items()})
    sys.exit(exit_code(lambda: train(run, request)))


def _outcome(run: Run, ranks: Mapping[int, BaseProcess]) -> int:
    """The exit code of all ranks together: that of the first one that fails, or when all have ended.

    A rank that is told to stop before it has met the others does not come, and those that wait for it cannot notice.
    """
    first_stopped: float | None = None
    while True:
        codes = {rank: process.exitcode for rank, process in ranks.items()}
        failed = {rank: code for rank, code in codes.items() if code not in (None, os.EX_OK, os.EX_TEMPFAIL)}
        if failed or None not in codes.values():
            return code_of_ranks(run, {rank: code for rank, code in codes.items() if code})
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
