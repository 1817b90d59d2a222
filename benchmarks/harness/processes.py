"""Processes of a case: forked from one that has imported what they need, also in the environment of a peer.

    with Processes() as here, Processes(python=peers.python("accelerate")) as there:
        here.run("benchmarks.synchronising.ours:train", [{"rank": rank} for rank in range(4)])

`run` calls the function in one new process for each set of keyword arguments, at the same time, and returns a `Report`
for each. Arguments and results are JSON. What the function's module imports must be installed in its environment:
modules for peers import nothing of resync.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SETTINGS = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 62)}
"""Of all cases, ours and those of peers: one thread, and memory that is kept (`resync.keep_freed_memory`)."""


@dataclass(frozen=True)
class Report:
    """What one process returned, its processor time, and by how much memory (RSS) it has grown at its peak."""

    value: Any
    processor_seconds: float
    peak_bytes: int


class Failed(Exception):
    """A process raised an error, ended without a result, or took too long; with its traceback."""


class Processes:
    """A process that waits for work and forks; `imports` are the modules that its children find imported."""

    def __init__(self, python: str | Path = sys.executable, imports: Sequence[str] = ("torch",)) -> None:
        command = [str(python), "-P", str(Path(__file__).with_name("forking.py")), *imports]
        variables = os.environ | SETTINGS | {"PYTHONPATH": _path(os.environ.get("PYTHONPATH"))}
        self._parent = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._requests, self._answers = self._parent.stdin, self._parent.stdout

    def run(
        self,
        target: str,
        arguments: Sequence[Mapping[str, Any]],
        *,
        namespaces: Sequence[str] = (),
        timeout: float = 300,
    ) -> list[Report]:
        """The reports of `module:function` for each set of arguments.

        `namespaces` names the network namespace of each process, if they are not to be in that of the system.

        Raises Failed if any of them does, after all have been ended.
        """
        work = {"target": target, "arguments": list(arguments), "namespaces": list(namespaces), "timeout": timeout}
        self._requests.write(json.dumps(work) + "\n")
        self._requests.flush()
        line = self._answers.readline()
        if not line:
            raise Failed(f"{target}: the process that starts others has ended with {self._parent.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(f"{target}: {answer['error']}")
        return [Report(**each) for each in answer["reports"]]

    def close(self) -> None:
        """End the process."""
        self._requests.close()
        self._answers.close()
        self._parent.wait()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _path(before: str | None) -> str:
    return os.pathsep.join([str(ROOT), *([before] if before else [])])
