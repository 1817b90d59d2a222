"""The moments of a run at which a process can be killed, counted inside its processes.

A run that is started through `main` writes every moment to a journal: a step, an evaluation, a synchronisation, and
every change of a file in the run's folder, just before it. At one chosen moment the process that gets there says so and
waits until whoever started it has killed somebody. So a kill falls between two system calls that a clock would never
hit, and falls there again with the same seed.
"""

import functools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from resync.tools import cli

CONTROL = "RESYNC_CHAOS"
"""The environment variable with the folder of the journal and the chosen moment."""
TRAINING = "training"
_FUNCTIONS = {
    ("torch.distributed", "init_process_group"): "joining",
    ("resync.runs.train.checkpoint", "Checkpoints.load"): "resuming",
    ("resync.workers.engine.transport", "Transport.mean_"): "synchronising",
    ("resync.workers.engine.transport", "Transport.post"): "synchronising",
    ("resync.runs.train.loop", "evaluate"): "evaluating",
    ("resync.runs.train.watchdog", "Watchdog.beat"): TRAINING,
}
"""What is called at a moment, and the phase of the run that it belongs to."""
_CHANGES = {"os.rename": 2, "os.remove": 1, "os.rmdir": 1, "os.mkdir": 1, "shutil.rmtree": 1}
"""Events of Python's audit hook that change a folder, and how many paths they begin with."""
_PUBLISHED = {"metrics.csv": "the tables", "steps.csv": "the tables", "model.pt": "the model",
              "summary.json": "the summary"}  # fmt: skip


class Moment(NamedTuple):
    """The `number`-th time that `who` (launcher, rank 0, rank 1) comes to a phase after a start."""

    who: str
    phase: str
    number: int


class Entry(NamedTuple):
    """A line of the journal: the moment, what happens next, the process, the steps it has taken, the time."""

    moment: Moment
    what: str
    pid: int
    step: int
    time: float


class Control:
    """The folder through which whoever starts a run and the run's processes talk about one start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chosen, self.reached, self.released = (folder / name for name in ("chosen", "reached", "released"))

    def choose(self, moment: Moment | None) -> None:
        """Prepare a start that waits at a moment, or one that waits nowhere."""
        self.folder.mkdir(parents=True)
        self.chosen.write_text(json.dumps({"moment": moment, "harness": os.getpid()}))

    def journal(self) -> Iterator[Entry]:
        """What the processes have done, in the order of time."""
        with suppress(FileNotFoundError):
            for line in (self.folder / "journal").read_text().splitlines():
                moment, *rest = json.loads(line)
                yield Entry(Moment(*moment), *rest)


class Recorder:
    """Writes the journal of the process that makes it and of its forks."""

    def __init__(self, control: Control, run: Path) -> None:
        self.control, self.run = control, str(run.absolute()) + os.sep
        chosen = json.loads(control.chosen.read_text())
        self.chosen = Moment(*chosen["moment"]) if chosen["moment"] else None
        self.harness = Path(f"/proc/{chosen['harness']}")
        self.journal = os.open(control.folder / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.steps = 0

    def watch(self) -> None:
        """Count from now on."""
        for (module, path), phase in _FUNCTIONS.items():
            *outer, name = path.split(".")
            owner = functools.reduce(getattr, outer, import_module(module))
            setattr(owner, name, self._announced(getattr(owner, name), phase))
        sys.addaudithook(self._audit)

    def _announced(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def announced(*given: Any, **named: Any) -> Any:
            if phase == TRAINING:
                self.steps = given[1]
            self._moment(phase, "" if phase != TRAINING else f"after step {self.steps}")
            return function(*given, **named)

        return announced

    def _audit(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = given
            paths = [path] if flags & (os.O_WRONLY | os.O_RDWR) else []
        else:
            paths = list(given[: _CHANGES.get(event, 0)])
        if paths and not isinstance(paths[0], int):
            names = [self._in_run(path, given[-1] if event in ("os.remove", "os.rmdir") else -1) for path in paths]
            if all(names):
                self._moment(_phase(event, names), f"{event} {' -> '.join(names)}")

    def _in_run(self, path: Any, directory: int) -> str:
        """The path inside the run's folder, empty for one outside of it."""
        folder = os.readlink(f"/proc/self/fd/{directory}") if directory >= 0 else ""
        whole = os.path.abspath(os.path.join(folder, os.fsdecode(path)))
        return whole.removeprefix(self.run) if whole.startswith(self.run) else ""

    def _moment(self, phase: str, what: str) -> None:
        who = f"rank {os.environ['RANK']}" if "RANK" in os.environ else "launcher"
        self.counts[who, phase] += 1
        moment = Moment(who, phase, self.counts[who, phase])
        os.write(self.journal, json.dumps([moment, what, os.getpid(), self.steps, time.time()]).encode() + b"\n")
        if moment == self.chosen and not self.control.reached.exists():
            self.control.reached.touch()
            while not self.control.released.exists():
                if not self.harness.exists():  # it was killed itself
                    os._exit(1)
                time.sleep(0.002)


def _phase(event: str, names: list[str]) -> str:
    folder, *inside = names[0].split(os.sep)
    if folder == "checkpoint":
        if not inside or (len(inside) == 1 and event == "os.mkdir"):
            return "writing a checkpoint"
        if event == "os.rename" and names[0].endswith(".partial"):
            return "naming a checkpoint"
        return "writing a checkpoint" if inside[0].endswith(".partial") else "deleting a checkpoint"
    if event == "os.remove":
        return "clearing up"
    if folder.endswith(".csv.partial"):
        return "logging"
    file = names[-1].removeprefix(".").split(".", 2)
    return "publishing " + _PUBLISHED[name] if (name := ".".join(file[:2])) in _PUBLISHED else "beginning"


def watch(arguments: list[str]) -> None:
    """Count the moments of this process if the environment names a folder for the journal and they name a run."""
    if CONTROL in os.environ and "--out" in arguments:
        Recorder(Control(Path(os.environ[CONTROL])), Path(arguments[arguments.index("--out") + 1])).watch()


def main(arguments: list[str]) -> int:
    """`resync` with these arguments, watched."""
    watch(arguments)
    return cli.main(arguments)
