"""Programs on the virtual nodes, which are all this machine, as forks of one process that has imported them.

On two busy cores, importing torch, Snakemake or DeepSpeed takes longer than everything that a test does with it. Slurm
still starts each program, as a small client with its name, so that its place among Slurm's processes is the real one.
Signals to a client are forwarded to its fork and to all processes that the fork has started, and if a client is killed,
they are killed too.
"""

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from resync.base.processes import warm, warm_client
from resync.base.processes.signals import PARENT
from resync.tools import cli

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
PROGRAMS = {"snakemake": "snakemake.cli", "deepspeed": "deepspeed.launcher.launch"}
CLIENT = """\
import sys
from resync.base.processes import warm_client

warm_client.STOP, warm_client.limited = {signals}, lambda: False
sys.exit(warm_client.delegate([*{program}, *sys.argv[1:]]))
"""
POLLED, PATIENT = "polled", "patient"
"""The file that Snakemake touches after asking about its jobs, and one for which it then waits longer."""


def obey(read: Callable[[int], bytes]) -> None:
    """In place of `warm.obey`: signals reach all processes of a job, and if its client is killed, they are too."""
    os.setpgid(0, 0)
    while received := read(1):
        os.killpg(0, received[0])
    os.killpg(0, signal.SIGKILL)


def write_clients(source: Path) -> None:
    """In a folder that is first in the path of Python: in place of each program, its client."""
    for module, program in (("resync.__main__", []), ("snakemake.__main__", ["snakemake"]),
                            ("deepspeed.launcher.launch", ["deepspeed"])):  # fmt: skip
        path = source / f"{module.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        for package in [each for each in path.parents if source in each.parents]:
            (package / "__init__.py").touch()
        path.write_text(CLIENT.format(signals=tuple(map(int, SIGNALS)), program=program))


@contextmanager
def process(path: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment in which the clients below src are forked from one process that listens on the socket `path`."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(128)
    environment = environment | {"PYTHONPATH": "src", "OMP_NUM_THREADS": "1", warm_client.ADDRESS: str(path)}
    receiver, sender = multiprocessing.Pipe(duplex=False)
    server = multiprocessing.get_context("fork").Process(target=_serve, args=(listener, environment, receiver, sender))
    server.start()
    receiver.close()
    listener.close()
    try:
        yield environment
    finally:
        sender.close()
        server.join()


def _serve(listener: socket.socket, environment: dict[str, str], receiver: Connection, sender: Connection) -> None:
    """Serve until the sender is closed."""
    sender.close()
    os.dup2(receiver.fileno(), 0)
    os.environ.update(environment)
    sys.argv[1:] = [str(listener.detach()), tempfile.mkdtemp()]
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", 1, closefd=False) for stream in (1, 2))
    warm.obey = obey
    # Snakemake would look less and less often whether a job has ended, up to every three minutes.
    RemoteExecutor.next_seconds_between_status_checks = property(_polled, lambda executor, seconds: None)
    warm.serve(_run, "resync.runs.train", "snakemake.cli")


def _polled(executor: RemoteExecutor) -> int:
    Path(POLLED).touch()
    return 40 if Path(PATIENT).exists() else 5


def _run(arguments: list[str]) -> int:
    os.setpgid(0, 0)
    os.environ.pop(PARENT, None)  # of a rank, that of its client
    program, *rest = arguments
    if program not in PROGRAMS:
        return cli.main(arguments)
    sys.argv[1:] = rest
    return import_module(PROGRAMS[program]).main() or 0
