"""A process that has imported the modules that jobs need, and forks itself for each job.

`resync warm snakemake ...` runs a command in whose jobs `python -m resync ...` imports nothing: importing torch and
the modules of its optimizers takes longer than a small run. Jobs behave in the same way as on their own; on Slurm,
whose jobs have their own limits, nothing is forked.
"""

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from resync.processes.signals import STOP

ADDRESS = "RESYNC_WARM"
"""The environment variable with the path of the process's socket."""

_TRAINING = (
    "torch._dynamo",  # torch's optimizers import it on first use
    "torch.distributed.launcher.api",
    "resync.train",
    "resync.launch.attempts",
    "torch.utils.serialization",  # torch.save does
    "wandb.sdk.launch.inputs.internal",  # wandb.init does
)
IMPORTS = {
    "launch": _TRAINING,
    "train": _TRAINING,
    "collect": ("resync.results.collect",),
    "render": (
        "resync.render.table",
        "resync.render.lines",
        "matplotlib.pyplot",
        "matplotlib.backends.backend_pdf",
        "PIL.PngImagePlugin",
        "pyarrow.pandas_compat",
    ),
    "audit": ("resync.audit",),
    "report": ("resync.report",),
}
"""The verbs that run in a fork, and the modules imported before the first job of each."""


def run(command: list[str]) -> int:
    """Run `command` beside a warm process; return the command's exit code."""
    with tempfile.TemporaryDirectory(prefix="resync-") as folder:
        path = Path(folder) / "socket"
        serve = [
            sys.executable,
            "-c",
            "from resync import cli; from resync.processes import warm; warm.serve(cli.main)",
            str(path),
        ]
        # Jobs set their own number of threads; a process that forks must have a single thread.
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with subprocess.Popen(serve, stdin=subprocess.PIPE, env=environment) as server:
            try:
                while not path.exists() and server.poll() is None:
                    time.sleep(0.01)
                return _code_of(subprocess.Popen(command, env=os.environ | {ADDRESS: str(path)}))
            finally:
                # The server and its jobs end when its standard input ends, even if this process is killed.
                assert server.stdin
                server.stdin.close()


def _code_of(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process, which may clean up after a Ctrl-C even though the signal reaches this one as well."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def limited() -> bool:
    """Whether this process belongs to a Slurm job, whose limits a fork of another process would not have."""
    return "SLURM_JOB_ID" in os.environ


def delegate(arguments: list[str]) -> int | None:
    """Run `resync <arguments>` in a fork of the warm process; return its exit code, or None if there is none.

    The fork has this process's working directory, environment and standard streams, receives the signals `STOP`, and
    ends with this process.
    """
    path = os.environ.get(ADDRESS)
    if not path or limited() or not arguments or arguments[0] not in IMPORTS:
        return None
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return None  # it is on another machine or has ended
        request = {"arguments": arguments, "directory": str(Path.cwd()), "environment": dict(os.environ)}
        socket.send_fds(connection, [b"0"], [0, 1, 2])
        connection.sendall(json.dumps(request).encode() + b"\n")

        def pass_on(number: int, frame: FrameType | None) -> None:
            with contextlib.suppress(BrokenPipeError):  # the job has just ended
                connection.sendall(bytes([number]))

        for number in STOP:
            signal.signal(number, pass_on)
        answer = connection.makefile().readline()
    if not answer:
        print("resync: error: the warm process ended before the job did", file=sys.stderr)
        return 1
    return int(answer)


class Server:
    """Forks a process for each request and replies with its exit code."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(128)
        self.selector = selectors.DefaultSelector()
        self.children: dict[int, socket.socket] = {}
        self.arguments: list[str] | None = None
        """In a fork, the arguments of its request."""

    def serve(self) -> list[str] | None:
        """Serve until standard input ends, then return None; in each fork, return the arguments of its request."""
        self._watch(self.listener.fileno(), self._accept)
        self._watch(0, lambda: None)
        while True:
            for key, _ in self.selector.select():
                if key.fd == 0:
                    for child in self.children:
                        os.kill(child, signal.SIGTERM)
                    return None
                key.data()
                if self.arguments is not None:
                    return self.arguments

    def _watch(self, descriptor: int, action: Callable[[], None]) -> None:
        self.selector.register(descriptor, selectors.EVENT_READ, action)

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        _, streams, _, _ = socket.recv_fds(connection, 1, 3)
        request = json.loads(connection.makefile().readline())
        for module in IMPORTS[request["arguments"][0]]:
            # The job imports it again, where the user sees why that fails.
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        gc.freeze()  # a garbage collection in a fork would copy the shared memory
        child = os.fork()
        if child == 0:
            self._become(request, streams)
            return
        for stream in streams:
            os.close(stream)
        self.children[child] = connection
        ended = os.pidfd_open(child)
        self._watch(ended, lambda: self._answer(child, ended))
        self._watch(connection.fileno(), lambda: self._pass_on(child))

    def _become(self, request: dict[str, object], streams: list[int]) -> None:
        """Turn this fork into the process that the request describes."""
        self.selector.close()
        for connection in (self.listener, *self.children.values()):
            connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(str(request["directory"]))
        os.environ.clear()
        os.environ.update(request["environment"])  # type: ignore[call-overload]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.arguments = list(request["arguments"])  # type: ignore[call-overload]

    def _answer(self, child: int, ended: int) -> None:
        _, status = os.waitpid(child, 0)
        connection = self.children.pop(child)
        for descriptor in (ended, connection.fileno()):
            with contextlib.suppress(KeyError):
                self.selector.unregister(descriptor)
        os.close(ended)
        with connection, contextlib.suppress(BrokenPipeError):
            connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))

    def _pass_on(self, child: int) -> None:
        """Forward the signals that a client received to its job; if the client has ended, ask the job to end."""
        signals = self.children[child].recv(64)
        if not signals:
            self.selector.unregister(self.children[child].fileno())
        for number in signals or [signal.SIGTERM]:
            os.kill(child, number)


def serve(verb: Callable[[list[str]], int]) -> NoReturn:
    """Serve on the socket named on the command line; in each fork, run `verb` with the arguments of its request.

    Both end without releasing the memory that they share with other processes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the jobs; this process ends with its input
    arguments = Server(Path(sys.argv[1])).serve()
    code = 0 if arguments is None else _ended(verb, arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _ended(verb: Callable[[list[str]], int], arguments: list[str]) -> int:
    try:
        return verb(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
