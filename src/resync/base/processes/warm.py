"""A process that has imported what jobs need, and forks itself for each job.

`run` starts a command, Snakemake, in whose jobs `python -m resync ...` imports nothing: importing torch takes longer
than a small run. What the first job of a kind has imported, this process imports before the next one.
"""

import gc
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, NoReturn

from resync.base.processes.signals import end_with_parent
from resync.base.processes.warm_client import ADDRESS

SLOW = ("resync.runs.train", "torch._dynamo", "pandas", "matplotlib.pyplot", "matplotlib.backends.backend_pdf")
"""What takes seconds to import, and would at first be imported by several jobs at a time."""
SERVE = "from resync.base.processes import warm; from resync.tools import cli; warm.serve(cli.main, *warm.SLOW)"
"""The program of the warm process; its arguments are a listening socket and a folder."""


def run(command: list[str]) -> int:
    """Run `command` beside a warm process; return its exit code, 128 + n if signal n has ended it.

    If this process is killed, the command gets SIGTERM, at which Snakemake starts no more jobs.
    """
    short = len(tempfile.gettempdir()) < 80  # the address of a socket has at most 107 bytes
    folder = tempfile.mkdtemp(prefix="resync-", dir=None if short else "/tmp")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen(128)
        number = listener.fileno()
        # Jobs set their own number of threads; a process that forks must have a single thread.
        server = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(number), folder], stdin=subprocess.PIPE, pass_fds=[number],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    try:
        return run_alone(command, os.environ | {ADDRESS: f"{folder}/socket"})
    finally:
        server.kill()  # its jobs get SIGTERM, as when its input ends because this process was killed
        server.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def run_alone(command: list[str], environment: Mapping[str, str] | None = None) -> int:
    """The same without a warm process."""
    process = subprocess.Popen(command, env=environment, preexec_fn=partial(end_with_parent, signal.SIGTERM))
    while True:
        with suppress(KeyboardInterrupt):  # which reaches the command too; it may clean up
            code = process.wait()
            return code if code >= 0 else 128 - code


def serve(verb: Callable[[list[str]], int], *modules: str) -> NoReturn:
    """Import `modules`, then fork for each connection, until the input ends, a process that runs `verb`."""
    listener, folder = socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the jobs; this process ends with its input
    tempfile.tempdir = str(folder)  # where some modules make folders as they are imported
    for name in modules:
        import_module(name)
    jobs: list[int] = []
    while 0 not in select.select([listener.fileno(), 0], [], [])[0]:
        connection, _ = listener.accept()
        for file in folder.glob("*.imported"):
            for name in file.read_text(encoding="utf-8").split():
                with suppress(Exception):  # a job that needs it fails in the same way, and says why
                    import_module(name)
            file.unlink()
        gc.freeze()  # a garbage collection in a fork would copy the shared memory
        jobs = [job for job in jobs if os.waitpid(job, os.WNOHANG)[0] == 0]  # one that ends answers itself
        if (job := os.fork()) == 0:
            listener.close()
            _work(connection, verb, folder)
        jobs.append(job)
        connection.close()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # with which the kernel sends SIGTERM to all jobs


def _work(connection: socket.socket, verb: Callable[[list[str]], int], folder: Path) -> NoReturn:
    """Become the processes that the client asks for, one after the other until one fails, and end with the client."""
    code = 1
    try:
        end_with_parent(signal.SIGTERM)  # a run that lived on would train beside the next one, and nobody could stop it
        signal.signal(signal.SIGINT, signal.default_int_handler)
        tempfile.tempdir = None  # its own, not that of the warm process
        request = connection.makefile("rb")
        while streams := socket.recv_fds(connection, 1, 3)[1]:
            code = _carry_out(connection, request, streams, verb, folder)
            if code:
                break
    finally:
        os._exit(code)  # without releasing the memory that it shares with others


def _carry_out(
    connection: socket.socket, request: BinaryIO, streams: Sequence[int], verb: Callable[[list[str]], int], folder: Path
) -> int:
    """Run the verb as the request says, and answer with its exit code."""
    code, before = 1, set(sys.modules)
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        # Those of the warm process may know of a file, in which they could seek.
        sys.stdout, sys.stderr = (
            os.fdopen(number, "w", encoding=sys.stdout.encoding, closefd=False) for number in (1, 2)
        )
        asked = json.loads(request.readline())
        os.chdir(asked["directory"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        if not asked["stays"]:
            threading.Thread(target=obey, args=[request.read], name="client", daemon=True).start()
        code = verb(asked["arguments"])
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        if imported := [name for name in sys.modules if name not in before]:
            with suppress(OSError):
                (folder / f"{os.getpid()}.imported").write_text("\n".join(imported), encoding="utf-8")
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        with suppress(OSError):
            connection.sendall(b"%d\n" % code)
    return code


def obey(read: Callable[[int], bytes]) -> None:
    """Raise in this process the signals that its client has received, and SIGTERM when the client has ended."""
    while received := read(1):
        os.kill(os.getpid(), received[0])
    os.kill(os.getpid(), signal.SIGTERM)
