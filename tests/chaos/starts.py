"""The ways to start a run, each a command that ends, and the processes that can be killed meanwhile.

Everything is forked from the harness, which has imported torch and Snakemake, and nothing outlives it.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import moments
import psutil
import yaml

from resync.base.processes import warm, warm_client
from resync.base.processes.signals import end_with_parent

ROOT = Path(__file__).parents[2]
LIMIT = 300.0
"""Seconds within which everything that is waited for happens, also on a busy machine, or never."""
SILENCE = 240
"""Seconds after which the watchdog of a rank ends it: no process of a busy machine is silent for so long."""
_PR_SET_CHILD_SUBREAPER = 36


class Hung(AssertionError):
    """Something did not happen within the limit."""


class Processes:
    """The children of the harness, with those that lost their parents."""

    def __init__(self) -> None:
        for module in ("torch._dynamo", "resync.runs.launch.fork", "resync.runs.train", "resync.runs.launch.attempts",
                       "torch.utils.serialization", "snakemake.cli", "smart_open"):  # fmt: skip
            import_module(module)
        import_module("snakemake.cli").get_argument_parser()
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self.codes: dict[int, int] = {}

    def fork(self, function: Callable[[], Any], log: Path, **environment: str) -> int:
        """The number of a new process that calls `function` and exits with what it returns."""
        sys.stdout.flush()
        sys.stderr.flush()
        if child := os.fork():
            self.codes.pop(child, None)  # of an earlier process of that number
            return child
        code = 1
        try:
            end_with_parent(signal.SIGKILL)
            os.setsid()
            for stream in (1, 2):
                os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), stream)
            os.environ.update(environment)
            code = function()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def code(self, pid: int) -> int | None:
        """The exit code of a child, None if it has not ended."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self.codes[found[0]] = os.waitstatus_to_exitcode(found[1])
        return self.codes.get(pid)

    def others(self, *but: int | None) -> list[psutil.Process]:
        """All living processes below this one, except these."""
        self.code(0)
        found = psutil.Process().children(recursive=True)
        return [each for each in found if each.pid not in but and _lives(each)]

    @contextmanager
    def ended(self) -> Iterator[None]:
        """All processes are killed at the end of the block."""
        try:
            yield
        finally:
            wait(self._none_is_left, "the end of killed processes")

    def _none_is_left(self) -> bool:
        left = self.others()
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        return not left


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def wait(condition: Callable[[], Any], what: str) -> Any:
    """What `condition` returns when that is true. Raises Hung."""
    deadline = time.monotonic() + LIMIT
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise Hung(f"{what} did not happen within {LIMIT:.0f} s")
        time.sleep(0.01)
    return found


class Start:
    """A run in `folder`, started with `resync launch`; `command` is the number of the process that is waited for."""

    victims = ("rank 0", "rank 1", "both ranks", "launcher")
    launcher: tuple[str, ...] = ()

    def __init__(self, processes: Processes, folder: Path, settings: dict[str, Any]) -> None:
        self.processes, self.folder, self.settings = processes, folder, settings
        self.out = folder / "run"
        self.log = folder / "log"
        self.command = 0
        self.prepare()

    def prepare(self) -> None:
        self.out.mkdir(parents=True)
        (self.out / "config.yaml").write_text(yaml.safe_dump(self.settings))

    @property
    def arguments(self) -> list[str]:
        flags = ["--config", str(self.out / "config.yaml"), "--out", str(self.out), "--timeout", str(SILENCE)]
        return ["launch", *flags, *self.launcher]

    def start(self, control: moments.Control) -> None:
        """Start the command in a process of its own."""
        environment = {moments.CONTROL: str(control.folder)}
        self.command = self.processes.fork(lambda: self.run(), self.log, **environment)

    def run(self) -> int:
        """The command; returns its exit code."""
        return moments.main(self.arguments)

    def numbers(self, victim: str, control: moments.Control) -> list[int]:
        """The numbers of the processes that a victim is, empty if one of them has not begun."""
        # The launcher of a job of the warm process is the fork of that.
        found = {entry.moment.who: entry.pid for entry in control.journal()}
        victim = "launcher" if victim == "warm fork" else victim
        names = ["rank 0", "rank 1"] if victim == "both ranks" else [victim]
        return [found[name] for name in names] if set(names) <= found.keys() else []

    def persistent(self) -> tuple[int, ...]:
        """The processes that may live on when the run has ended."""
        return ()

    def settle(self) -> None:
        """Wait for what must have ended before the command is started again."""

    def close(self) -> None:
        """End what may live on."""


class Torchrun(Start):
    """The same by the launcher `torchrun`, whose ranks are commands."""

    def run(self) -> int:
        here = Path(__file__).parent
        os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (here / "ranks", here, ROOT / "src")))
        self.launcher = ("--launcher", "torchrun")
        return super().run()


class Warm(Start):
    """The same as a job of `resync run`, whose server is one of the victims."""

    victims = ("warm server", "command", "rank 0", "rank 1", "both ranks", "warm fork")
    server = 0

    def start(self, control: moments.Control) -> None:
        if not self.server or self.processes.code(self.server) is not None:
            self._serve()
        super().start(control)

    def run(self) -> int:
        code = warm_client.delegate(self.arguments)
        return moments.main(self.arguments) if code is None else code

    def numbers(self, victim: str, control: moments.Control) -> list[int]:
        if victim in ("warm server", "command"):
            return [self.server if victim == "warm server" else self.command]
        return super().numbers(victim, control)

    def persistent(self) -> tuple[int, ...]:
        return (self.server,)

    def close(self) -> None:
        if self.server and self.processes.code(self.server) is None:
            os.close(self.input)
            if self.processes.code(self.command) is not None:  # otherwise it has the other end of the input, too
                wait(lambda: self.processes.code(self.server) is not None, "the end of the warm server")

    def _serve(self) -> None:
        if self.server:
            os.close(self.input)
        folder = Path(tempfile.mkdtemp(prefix="warm-", dir=self.folder))
        path = folder / "socket"
        reading, self.input = os.pipe()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(128)

        def serve() -> NoReturn:
            os.close(self.input)
            os.dup2(reading, 0)
            sys.argv[1:] = [str(listener.detach()), str(folder)]
            warm.serve(moments.main, "resync.runs.train")

        self.server = self.processes.fork(serve, self.log)
        os.close(reading)
        listener.close()
        os.environ[warm_client.ADDRESS] = str(path)


class Snakemake(Warm):
    """The same run as a target of Snakemake, which is the command, with its jobs in the warm process."""

    victims = ("Snakemake", "warm server", "rank 0", "rank 1", "both ranks", "warm fork")

    def prepare(self) -> None:
        self.folder.mkdir(parents=True)
        for name in ("src", "workflow", "Snakefile", "environment.yml"):
            (self.folder / name).symlink_to(ROOT / name)
        names = {name: self.settings[name] for name in ("paper", "experiment", "series", "scale", "seed")}
        settings = {name: value for name, value in self.settings.items() if name not in names}
        resources = {"cpus": 2, "timeout_seconds": SILENCE}
        paper = self.folder / "paper_configs" / names["paper"]
        (paper / "experiments").mkdir(parents=True)
        shutil.copytree(ROOT / "paper_configs/scales", paper.parent / "scales")
        title = {"title": "Kills", "authors": ["Nobody"], "venue": "tests"}
        (paper / "paper.yaml").write_text(yaml.safe_dump(title))
        experiment = {
            "expect": "It ends.",
            "base": {},
            "series": {names["series"]: {"label": "One"}},
            "scales": {names["scale"]: settings | {"seeds": [names["seed"]], "resources": resources}},
        }
        (paper / "experiments" / f"{names['experiment']}.yaml").write_text(json.dumps(experiment))
        run = "{scale}/{paper}/{experiment}/{series}/seed{seed}".format(**names)
        self.out = self.folder / "results" / run
        self.target = f"results/{run}/summary.json"

    def run(self) -> int:
        return self._snakemake(self.target)

    def numbers(self, victim: str, control: moments.Control) -> list[int]:
        return super().numbers("command" if victim == "Snakemake" else victim, control)

    def _snakemake(self, *arguments: str) -> int:
        os.chdir(self.folder)
        os.environ["PYTHONPATH"] = str(ROOT / "src")
        command = ["--profile", "workflow/profiles/local", *arguments]
        sys.argv[1:] = command
        import_module("snakemake.cli").main(command)
        return 0


class Make(Snakemake):
    """The same as `make reproduce` does it: `resync run` starts the warm process and Snakemake, and ends both."""

    victims = ("resync run", "Snakemake", "rank 0", "rank 1", "both ranks", "warm fork")

    def start(self, control: moments.Control) -> None:
        Start.start(self, control)

    def run(self) -> int:
        os.chdir(self.folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(Path(__file__).parent)])
        warm.SERVE = (
            "import moments; from resync.base.processes import warm; warm.serve(moments.main, 'resync.runs.train')"
        )
        return warm.run([sys.executable, "-m", "snakemake", "--profile", "workflow/profiles/local", self.target])

    def numbers(self, victim: str, control: moments.Control) -> list[int]:
        if victim == "resync run":
            return [self.command]
        if victim == "Snakemake":
            return [each.pid for each in psutil.Process(self.command).children() if "--profile" in each.cmdline()]
        return Start.numbers(self, victim, control)

    def settle(self) -> None:
        """Nothing outlives `resync run`."""
        wait(lambda: not self.processes.others(), "the end of what resync run has started")


KINDS: dict[str, type[Start]] = {
    "launch": Start, "torchrun": Torchrun, "warm": Warm, "snakemake": Snakemake, "make": Make,
}  # fmt: skip
