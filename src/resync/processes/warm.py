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
import pkgutil
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from resync.processes.forked_verbs import IMPORTS
from resync.processes.signals import end_with_parent
from resync.processes.warm_client import ADDRESS, short_path

_REQUEST_BYTES = 1 << 16

SERVE = "from resync import cli; from resync.processes import warm; warm.serve(cli.main, cli.read_ahead)"
"""The program of the warm process."""

ReadAhead = Callable[[Sequence[str], Path], None]
"""Reads what a verb with these arguments, in this directory, will read in every fork."""


def run(command: list[str]) -> int:
    """Run `command` beside a warm process; return its exit code, 128 + n if signal n has ended it.

    If this process is killed, the command gets SIGTERM, at which Snakemake starts no more jobs.
    """
    with tempfile.TemporaryDirectory(prefix="resync-") as folder:
        path = Path(folder) / "socket"
        serve = [sys.executable, "-c", SERVE, str(path)]
        # Jobs set their own number of threads; a process that forks must have a single thread.
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with subprocess.Popen(serve, stdin=subprocess.PIPE, env=environment) as server:
            try:
                while not path.exists() and server.poll() is None:
                    time.sleep(0.01)
                environment = os.environ | {ADDRESS: str(path)}
                end = partial(end_with_parent, signal.SIGTERM)
                code = _code_of(subprocess.Popen(command, env=environment, preexec_fn=end))
                return code if code >= 0 else 128 - code
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


@dataclass
class Request:
    """What has arrived of a client's request: a line of JSON, and its standard streams."""

    text: bytes = b""
    streams: list[int] = field(default_factory=list)

    def close(self) -> None:
        """Close the streams."""
        for stream in self.streams:
            os.close(stream)


class Server:
    """Forks a process for each request and replies with its exit code."""

    def __init__(self, path: Path, read_ahead: ReadAhead | None = None) -> None:
        self.read_ahead = read_ahead
        self.listener = socket.socket(socket.AF_UNIX)
        with short_path(str(path)) as short:
            self.listener.bind(short)
        self.listener.listen(128)
        self.selector = selectors.DefaultSelector()
        self.requests: dict[socket.socket, Request] = {}
        self.children: dict[int, socket.socket] = {}
        self.arguments: list[str] | None = None
        """In a fork, the arguments of its request."""

    def serve(self) -> list[str] | None:
        """Serve until standard input ends, then return None; in each fork, return the arguments of its request."""
        self._watch(self.listener.fileno(), self._accept)
        self._watch(0, lambda: None)
        ahead = deque(self._ahead())
        while True:
            ready = self.selector.select(0 if ahead else None)
            if ahead and not ready:
                ahead.popleft()()
            for key, _ in ready:
                if key.fd == 0:
                    for child in self.children:
                        os.kill(child, signal.SIGTERM)
                    return None
                key.data()
                if self.arguments is not None:
                    return self.arguments

    def _ahead(self) -> Iterable[Callable[[], None]]:
        """What can be done for all verbs before anything is asked: a command takes seconds until its first job."""
        if self.read_ahead:
            for verb, names in IMPORTS.items():
                yield from (partial(_import, name) for name in names)
                yield partial(self.read_ahead, [verb], Path.cwd())

    def _watch(self, descriptor: int, action: Callable[[], None]) -> None:
        self.selector.register(descriptor, selectors.EVENT_READ, action)

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        self.requests[connection] = Request()
        self._watch(connection.fileno(), lambda: self._receive(connection))

    def _receive(self, connection: socket.socket) -> None:
        """Take what a client has sent of its request; if it has ended before the end of the line, forget it."""
        request = self.requests[connection]
        received, streams = b"", list[int]()
        with contextlib.suppress(ConnectionResetError):
            received, streams, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, 3)
        request.text += received
        request.streams += streams
        text, complete, signals = request.text.partition(b"\n")
        if received and not complete:
            return
        self.selector.unregister(connection.fileno())
        del self.requests[connection]
        if complete:
            self._start(connection, json.loads(text), request, signals)
        else:
            connection.close()
        request.close()

    def _start(self, connection: socket.socket, asked: dict[str, Any], request: Request, signals: bytes) -> None:
        for name in IMPORTS[asked["arguments"][0]]:
            _import(name)
        if self.read_ahead:
            self.read_ahead(asked["arguments"], Path(asked["directory"]))
        gc.freeze()  # a garbage collection in a fork would copy the shared memory
        child = os.fork()
        if child == 0:
            connection.detach()  # stays open: a client whose server is killed hears of it when its job has ended too
            self._become(asked, request.streams)
            return
        self.children[child] = connection
        ended = os.pidfd_open(child)
        self._watch(ended, lambda: self._answer(child, ended))
        self._watch(connection.fileno(), lambda: self._pass_on(child))
        for number in signals:
            os.kill(child, number)

    def _become(self, asked: dict[str, Any], streams: list[int]) -> None:
        """Turn this fork into the process that the request describes."""
        gc.enable()
        end_with_parent(signal.SIGTERM)  # a run that lived on would train beside the next one, and nobody could stop it
        tempfile.tempdir = None  # its own, not that of the warm process
        self.selector.close()
        for connection in (self.listener, *self.requests, *self.children.values()):
            connection.close()
        for request in self.requests.values():
            request.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(asked["directory"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.arguments = list(asked["arguments"])

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
        connection = self.children.get(child)
        if connection is None:
            return  # both were ready at once, and its end has been answered
        signals = b""
        with contextlib.suppress(ConnectionResetError):
            signals = connection.recv(64)
        if not signals:
            self.selector.unregister(connection.fileno())
        for number in signals or [signal.SIGTERM]:
            os.kill(child, number)


def _import(name: str) -> None:
    """Import a module, or all modules of a package; the job imports it again, where the user sees why that fails."""
    with contextlib.suppress(ImportError):
        module = importlib.import_module(name.removesuffix(".*"))
        if name.endswith(".*"):
            for each in pkgutil.iter_modules(module.__path__, f"{module.__name__}."):
                if not each.ispkg:
                    _import(each.name)


def serve(verb: Callable[[list[str]], int], read_ahead: ReadAhead | None = None) -> NoReturn:
    """Serve on the socket named on the command line; in each fork, run `verb` with the arguments of its request.

    With `read_ahead`, all verbs are prepared for as long as nothing is asked. Both processes end without releasing the
    memory that they share with others.
    """
    gc.disable()  # all that is imported and read is kept
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the jobs; this process ends with its input
    path = Path(sys.argv[1])
    # Modules such as wandb make folders when they are imported, and remove them at an end that this process does not
    # have.
    tempfile.tempdir = scratch = tempfile.mkdtemp(prefix="resync-")
    arguments = Server(path, read_ahead).serve()
    if arguments is None:
        shutil.rmtree(scratch, ignore_errors=True)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # `run` has deleted its folder, or others have files there
            path.parent.rmdir()
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
