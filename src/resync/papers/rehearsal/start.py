"""The start of a rehearsal: its run is launched, asked to stop, and goes on, as any other."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from resync.base.errors import UserError
from resync.base.files import delete_folder, write_text
from resync.papers.plan.rehearsed import FAILURES, failures, shape_id
from resync.papers.rehearsal.cut import cut
from resync.papers.rehearsal.records import record
from resync.runs.launch import slurm, stopping
from resync.runs.results import state
from resync.runs.run import Run

_CONFIG = "rehearsal.yaml"
_POLL_SECONDS = 0.1


def rehearse(runs: Sequence[Run], folder: Path) -> int:
    """Rehearse the shape that these runs have in common, in its place below `folder`, and write its record there.

    Returns 0, also if the rehearsal has failed, which its record says; 75 or 130 if it goes on when started again: in a
    Slurm job after its stop, since the job has been requeued.
    """
    run = runs[0]
    out = folder / shape_id(run)
    short, held = cut(run)
    config = out / _CONFIG
    if not config.exists() or config.read_text(encoding="utf-8") != short.to_yaml():
        if out.exists():
            delete_folder(out)
        out.mkdir(parents=True)
        write_text(out / state.HOLD, str(held))
        write_text(config, short.to_yaml())
    while True:
        asked = threading.Event()
        with stopping.remembered(), _stopped_at(held, out, asked):
            command, environment = _command(run, config, out), dict(os.environ)
            code = stopping.ended(command, environment, lambda launcher: os.kill(launcher, signal.SIGTERM))
        if code in (os.EX_TEMPFAIL, stopping.INTERRUPTED):
            if asked.is_set() and not slurm.inside():
                continue
            return code
        if record(runs, out, code):
            write_text(out / FAILURES, str(failures(out) + 1))
        return os.EX_OK


def _command(run: Run, config: Path, out: Path) -> list[str]:
    resources = run.resources
    flags = ["--nodes", resources.nodes, "--cpus", resources.cpus, "--launcher", resources.launcher,
             "--timeout", resources.timeout_seconds, "--max-restarts", 0]  # fmt: skip
    return [sys.executable, "-m", "resync", "launch", "--config", str(config), "--out", str(out), *map(str, flags)]


@contextmanager
def _stopped_at(step: int, out: Path, asked: threading.Event) -> Iterator[None]:
    """Within the block, ask this process to stop once its run waits for that."""

    def watch() -> None:
        while not over.wait(_POLL_SECONDS):
            try:
                now = state.recorded(out)
            except UserError:
                continue  # it is about to be written
            if now and now.state == "running" and now.step >= step and (out / state.HOLD).exists():
                asked.set()
                os.kill(os.getpid(), signal.SIGTERM)
                return

    over = threading.Event()
    thread = threading.Thread(target=watch, name="rehearsal")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
