"""The process behind `Processes`: forks for every line of its standard input; needs no package but those it is told of.

It is started as a file, because a peer's environment may lack what the rest of the harness imports.
"""

import ctypes
import gc
import json
import os
import resource
import select
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any


class Failed(Exception):
    """A child raised an error, ended without an answer, or took too long."""


def _serve() -> None:
    """Fork for every line of the standard input; answers go where the standard output was at the start."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the answers
    for name in sys.argv[1:]:
        import_module(name)
    gc.freeze()  # no collection of a child copies what it shares
    for line in sys.stdin:
        work = json.loads(line)
        try:
            answer = {"reports": _forked(**work)}
        except Failed as error:
            answer = {"error": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _forked(
    target: str, arguments: list[dict[str, Any]], namespaces: list[str], timeout: float
) -> list[dict[str, Any]]:
    module, _, name = target.partition(":")
    children: list[tuple[int, int]] = []
    try:
        for index, given in enumerate(arguments):
            readable, writable = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(readable)
                _work(writable, module, name, given, namespaces[index] if namespaces else None)
            os.close(writable)
            children.append((child, readable))
        return [_answer(readable, rank, timeout) for rank, (_, readable) in enumerate(children)]
    finally:
        for child, readable in children:
            os.close(readable)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _work(writable: int, module: str, name: str, given: dict[str, Any], namespace: str | None) -> None:
    """Never returns."""
    try:
        if namespace:
            _enter(namespace)
        before = _processor_seconds(), _rss("VmRSS")
        value = getattr(import_module(module), name)(**given)
        spent, grown = _processor_seconds() - before[0], _rss("VmHWM") - before[1]
        answer = {"value": value, "processor_seconds": spent, "peak_bytes": grown}
    except BaseException:
        answer = {"error": traceback.format_exc()}
    with os.fdopen(writable, "w") as pipe:
        json.dump(answer, pipe)
    signal.pause()  # its files and sockets stay open until all others have answered


def _answer(readable: int, rank: int, timeout: float) -> dict[str, Any]:
    text = b""
    while select.select([readable], [], [], timeout)[0]:
        part = os.read(readable, 1 << 16)
        text += part
        if part:
            continue
        answer = json.loads(text or '{"error": "ended without an answer"}')
        if "error" in answer:
            raise Failed(f"process {rank}: {answer['error']}")
        return answer
    raise Failed(f"process {rank} has not answered within {timeout:g} s")


def _enter(namespace: str) -> None:
    with open(f"/var/run/netns/{namespace}") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(file.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _rss(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(key))


if __name__ == "__main__":
    _serve()
