"""A run on the machines of a hostfile, each of which is reached through a remote shell such as ssh.

On every machine the remote shell starts `resync launch --place ...`, whose standard input comes from here: a line asks
it to stop with a checkpoint, and the end of the input ends all its processes. So nothing outlives this launcher or the
connection to it, however they end.
"""

import json
import multiprocessing
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from resync.errors import UserError
from resync.files import lines_of, read_bytes, text_of
from resync.launch import machine
from resync.launch.request import PORTS, Place, Request
from resync.launch.stopping import passing_on, stop_code
from resync.processes.lock import HELD
from resync.processes.signals import end_with_parent
from resync.run import Run

STOP = "stop\n"
FORWARDED = re.compile(
    rf"(NCCL|GLOO|UCX|FI)_\w+|RESYNC_(DATA|PREPARED)|{HELD}|OMP_NUM_THREADS|PYTHONPATH|LD_LIBRARY_PATH"
)
"""The variables that the processes on other machines get: no secrets, since everybody can read a command line."""

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 20.0
_REASONS = {255: "no connection by ssh", 127: "a command was not found there", 126: "a command cannot be run there"}


def read(hostfile: Path) -> dict[str, int]:
    """The slots of each host, in the order of the file: lines `host slots=n` as in DeepSpeed, # starts a comment.

    Raises UserError for any other line, and if the file cannot be read.
    """
    slots: dict[str, int] = {}
    try:
        text = text_of(read_bytes(hostfile))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{hostfile}: {error}") from None
    for number, line in enumerate(lines_of(text), start=1):
        if not (entry_text := line.partition("#")[0].strip()):
            continue
        entry = re.fullmatch(r"([^\s=-][^\s=]*)\s+slots=([1-9][0-9]*)", entry_text)
        if entry is None or not entry_text.isprintable():
            raise UserError(f"{hostfile}:{number}: found {entry_text!r}, allowed: HOST slots=NUMBER")
        if found := re.search(r"[@/\[\]]", entry[1]):
            allowed = "a name or address alone; ~/.ssh/config has users and ports"
            raise UserError(f"{hostfile}:{number}: found {found[0]!r} in {entry[1]}, allowed: {allowed}")
        if entry[1] in slots:
            raise UserError(f"{hostfile}:{number}: found {entry[1]} again, allowed: one line for each host")
        slots[entry[1]] = int(entry[2])
    return slots


def choose(run: Run, request: Request) -> tuple[str, ...]:
    """The first hosts of the request's hostfile, one for each node.

    Raises ValueError if there are too few, or one has too few slots for its share of the processes, and if the remote
    shell is not installed.
    """
    assert request.hostfile
    slots = read(request.hostfile)
    nodes = request.nodes or len(slots)
    if not 0 < nodes <= len(slots):
        raise UserError(f"{request.hostfile}: found {len(slots)} hosts, allowed: at least nodes = {max(1, nodes)}")
    if run.processes % nodes:
        raise UserError(f"found {nodes} nodes, allowed: a divisor of the {run.processes} processes of {run.id}")
    share, hosts = run.processes // nodes, tuple(slots)[:nodes]
    for host in hosts:
        if slots[host] < share:
            found = f"found slots={slots[host]} of host {host}"
            raise UserError(f"{request.hostfile}: {found}, allowed: at least {share}, its share of the processes")
    try:
        socket.getaddrinfo(hosts[0], None)
    except OSError as error:
        allowed = "one at which the others can reach it, no name that only ssh knows"
        raise UserError(f"{request.hostfile}: host {hosts[0]}: {error.strerror}, allowed: {allowed}") from None
    program = next(iter(shlex.split(request.remote_shell)), "")
    if shutil.which(program) is None:
        raise UserError(f"remote shell {program} is not installed; allowed: ssh or a program like it")
    return hosts


def run(run: Run, request: Request, hosts: tuple[str, ...]) -> int:
    """Train with the processes of all hosts; return the exit code. If one host fails, all processes end."""
    # Another port at every attempt, so that one that is taken costs one attempt.
    port = random.choice(PORTS)
    processes = {host: _start(request, Place(hosts, index, hosts[0], port)) for index, host in enumerate(hosts)}
    try:
        with passing_on(lambda: _tell(processes)):
            return _outcome(run, processes)
    finally:
        _end(processes)


def run_part(request: Request, place: str) -> int:
    """This machine's part of a run, started by `run` on another machine; `place` is its Place as JSON."""
    given = json.loads(place)
    with _obeying():
        return machine.run(request.run, request, Place(**given | {"hosts": tuple(given["hosts"])}))


def _start(request: Request, place: Place) -> subprocess.Popen[str]:
    """The remote shell that runs the part of one host."""
    variables = [f"{name}={value}" for name, value in sorted(os.environ.items()) if FORWARDED.fullmatch(name)]
    part = [sys.executable, "-m", "resync", *request.on_host, "--place", json.dumps(asdict(place))]
    there = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(['env', *variables, *part])}"
    return subprocess.Popen(
        [*shlex.split(request.remote_shell), place.hosts[place.index], there],
        stdin=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C is passed on through the input
        preexec_fn=lambda: end_with_parent(signal.SIGTERM),
    )


def _outcome(run: Run, processes: Mapping[str, subprocess.Popen[str]]) -> int:
    """The exit code of all hosts together: that of the first one that fails, or when all have ended."""
    while True:
        codes = {host: process.poll() for host, process in processes.items()}
        for host, code in codes.items():
            if code not in (None, os.EX_OK, os.EX_TEMPFAIL):
                why = f" ({_REASONS[code]})" if code in _REASONS else ""
                print(f"resync: error: {run.id}: host {host} ended with exit code {code}{why}", file=sys.stderr)
                return code if code == 2 else 1
        if None not in codes.values():
            return stop_code() if os.EX_TEMPFAIL in codes.values() else os.EX_OK
        time.sleep(_POLL_SECONDS)


def _tell(processes: Mapping[str, subprocess.Popen[str]]) -> None:
    """Ask every host to stop with a checkpoint."""
    for process in processes.values():
        assert process.stdin
        try:
            process.stdin.write(STOP)
            process.stdin.flush()
        except OSError:
            continue  # it has just ended


def _end(processes: Mapping[str, subprocess.Popen[str]]) -> None:
    """End the input of all hosts, which ends their processes, and wait for that."""
    for process in processes.values():
        assert process.stdin
        try:
            process.stdin.close()
        except OSError:
            continue  # it has just ended
    deadline = time.monotonic() + _GRACE_SECONDS
    for process in processes.values():
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _obeying() -> Iterator[None]:
    """Within the block, obey the standard input: a line is a SIGTERM, its end kills this process and its children."""

    def obey() -> None:
        # Not by way of sys.stdin: a process forked meanwhile would inherit its lock, and wait for it for ever.
        while os.read(0, len(STOP)):
            os.kill(os.getpid(), signal.SIGTERM)
        if not done.is_set():
            for child in multiprocessing.active_children():
                child.kill()
            os._exit(1)

    done = threading.Event()
    threading.Thread(target=obey, name="input", daemon=True).start()
    try:
        yield
    finally:
        done.set()
