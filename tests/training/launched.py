"""`resync launch` in a forked process, as users start it but without another interpreter, and what it leaves."""

import csv
import json
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
from processes import TIMEOUT

from resync.tools import cli

OVER_MACHINES: dict[str, Any] = {
    "processes": 2,
    "epochs": 24,
    "evaluation": {"every_epochs": 12},
    "checkpoint": {"every_rounds": 12},
    "log": {"every_steps": 4, "wandb": "disabled"},
    "sync": {"name": "sgp"},
}
"""A run long enough to be disturbed after its first checkpoint."""
CLOCKS = ("training_seconds", "communication_seconds", "evaluation_seconds")


@contextmanager
def forked(function: Callable[..., object], *arguments: object, log: Path) -> Iterator[psutil.Process]:
    """A process that calls `function` and exits with what it returns; nothing of it outlives the block."""
    import_module("torch._dynamo")  # once, not in every child
    import_module("resync.runs.launch.fork")
    child = multiprocessing.get_context("fork").Process(target=_logged, args=(log, function, *arguments))
    child.start()
    process = psutil.Process(child.pid)
    try:
        yield process
    finally:
        if child.is_alive():
            for each in [*process.children(recursive=True), process]:
                each.kill()
        child.join()


def _logged(log: Path, function: Callable[..., int], *arguments: object) -> None:
    os.setsid()  # a process group of its own, as a shell makes one for a job
    sys.stdout = sys.stderr = log.open("a", buffering=1)
    for stream in (1, 2):
        os.dup2(sys.stdout.fileno(), stream)
    sys.exit(function(*arguments))


def launched(folder: Path, *flags: str) -> AbstractContextManager[psutil.Process]:
    """`resync launch` of the configuration in a folder; its output goes to launch.log there."""
    command = ["launch", "--config", str(folder / "config.yaml"), "--out", str(folder), *flags]
    return forked(cli.main, command, log=folder / "launch.log")


def finish(folder: Path, *flags: str) -> int:
    """The exit code of `resync launch` that is left alone."""
    with launched(folder, *flags) as process:
        return code_of(process)


def in_clone(clone: Path, code: str, **environment: str) -> tuple[int, str]:
    """The exit code and the output of code in a clone with the clone's package; what that imports is there already."""
    log = clone / "output"
    log.unlink(missing_ok=True)
    with forked(_with_package_of, clone, code, environment, log=log) as process:
        return code_of(process), log.read_text()


def copy_files(root: Path, names: Iterable[str], clone: Path) -> None:
    """Copy files and folders of a repository, with their times, to their places in a clone."""
    for name in names:
        copy = shutil.copytree if (root / name).is_dir() else shutil.copy2
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        copy(root / name, clone / name)


def _with_package_of(clone: Path, code: str, environment: dict[str, str]) -> None:
    os.chdir(clone)
    os.environ.update(PYTHONPATH=str(clone / "src"), **environment)
    tests = str(Path(__file__).parents[1])
    for name, module in list(sys.modules.items()):
        # The clone has tests of its own.
        if name.partition(".")[0] == "resync" or (getattr(module, "__file__", None) or "").startswith(tests):
            del sys.modules[name]
    sys.path.insert(0, str(clone / "src"))
    exec(code, {"__name__": "__main__"})


def have_ended(processes: Iterable[psutil.Process]) -> bool:
    return not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes)


def code_of(process: psutil.Process) -> int:
    """The exit code of a process that `forked` has started, when it has ended."""
    deadline = time.monotonic() + TIMEOUT
    [child] = [each for each in multiprocessing.process._children if each.pid == process.pid]  # type: ignore[attr-defined]
    child.join(deadline - time.monotonic())
    assert child.exitcode is not None, "it did not end"
    return child.exitcode


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints, oldest first."""
    return sorted((folder / "checkpoint").glob("step??????????"))


def assert_ends_like(folder: Path, other: Path) -> dict[str, Any]:
    """The results in a folder are those of another run. Returns the summary."""
    summary, reference = (json.loads((each / "summary.json").read_text()) for each in (folder, other))
    assert summary["parameters_sha256"] == reference["parameters_sha256"]
    assert metrics(folder) == metrics(other)
    return dict(summary)


def metrics(folder: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv without what clocks say."""
    rows = csv.DictReader((folder / "metrics.csv").open())
    return [{name: value for name, value in row.items() if name not in CLOCKS} for row in rows]
