"""Programs on the virtual nodes, which are all this machine, as forks of one process that has imported them.

On two busy cores, importing torch, Snakemake or DeepSpeed takes longer than everything that a test does with it. Slurm
still starts each program, as a small client with its name, so that its place among Slurm's processes is the real one.
Signals to a client are forwarded to its fork and to all processes that the fork has started, and if a client is killed,
they are killed too.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from resync import cli
from resync.processes import warm, warm_client

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
VERBS = {
    **warm.IMPORTS,
    "snakemake": (
        "snakemake.cli",
        "snakemake.executors.local",
        "snakemake.report.html_reporter",
        "snakemake.scheduling.milp",
        "snakemake_executor_plugin_slurm",
        "snakemake_executor_plugin_slurm_jobstep",
        "smart_open",
    ),
    "deepspeed": ("deepspeed.launcher.launch",),
}
CLIENT = """\
import sys
from resync.processes import warm_client

warm_client.IMPORTS, warm_client.STOP, warm_client.limited = {verbs}, {signals}, lambda: False
sys.exit(warm_client.delegate([*{program}, *sys.argv[1:]]))
"""
POLLED, POLL_SECONDS = "polled", 5
"""The file that Snakemake touches after asking about its jobs, and the time until it asks again."""


class JobServer(warm.Server):
    """A warm process whose forks each form a process group with their children, which Slurm's signals reach."""

    def _become(self, request: dict[str, object], streams: list[int]) -> None:
        super()._become(request, streams)
        os.setpgid(0, 0)

    def _pass_on(self, child: int) -> None:
        signals = self.children[child].recv(64)
        if not signals:
            self.selector.unregister(self.children[child].fileno())
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.setpgid(child, child)  # it may not have come so far itself
            for number in signals or [signal.SIGKILL]:
                os.killpg(child, number)


def write_clients(source: Path) -> None:
    """In a folder that is first in the path of Python: in place of each program, its client."""
    for module, program in (("resync.__main__", []), ("snakemake.__main__", ["snakemake"]),
                            ("deepspeed.launcher.launch", ["deepspeed"])):  # fmt: skip
        path = source / f"{module.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        for package in [each for each in path.parents if source in each.parents]:
            (package / "__init__.py").touch()
        path.write_text(CLIENT.format(verbs=dict.fromkeys(VERBS), signals=tuple(map(int, SIGNALS)), program=program))


@contextmanager
def process(path: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment in which the clients below src are forked from one process that listens on the socket `path`."""
    environment = environment | {"PYTHONPATH": "src", "OMP_NUM_THREADS": "1", warm_client.ADDRESS: str(path)}
    receiver, sender = multiprocessing.Pipe(duplex=False)
    server = multiprocessing.get_context("fork").Process(target=_serve, args=(path, environment, receiver, sender))
    server.start()
    receiver.close()
    try:
        yield environment
    finally:
        sender.close()
        server.join()


def _serve(path: Path, environment: dict[str, str], receiver: Connection, sender: Connection) -> None:
    """Serve until the sender is closed."""
    sender.close()
    os.dup2(receiver.fileno(), 0)
    os.environ.update(environment)
    sys.argv[1:] = [str(path)]
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", 1, closefd=False) for stream in (1, 2))
    warm.IMPORTS, warm.Server = VERBS, JobServer  # type: ignore[misc]
    # Snakemake would look less and less often whether a job has ended, up to every three minutes.
    RemoteExecutor.next_seconds_between_status_checks = property(_polled, lambda executor, seconds: None)
    warm.serve(_run)


def _polled(executor: RemoteExecutor) -> int:
    Path(POLLED).touch()
    return POLL_SECONDS


def _run(arguments: list[str]) -> int:
    program, *rest = arguments
    if program not in ("snakemake", "deepspeed"):
        return cli.main(arguments)
    sys.argv[1:] = rest
    return import_module(VERBS[program][0]).main() or 0
