"""One run, from its configuration to its results."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from math import inf
from pathlib import Path

import torch
import torch.distributed as dist

from resync.base.errors import UserError
from resync.base.files import write_text
from resync.base.processes.lock import locked
from resync.base.processes.memory import keep_freed_memory
from resync.base.processes.signals import end_with_parent, handled
from resync.runs.results import state
from resync.runs.results.summary import refuse_other_results
from resync.runs.run import Run
from resync.runs.run.run import Resources
from resync.runs.train import provenance
from resync.runs.train.build import build
from resync.runs.train.interrupt import Interrupted, Interruption
from resync.runs.train.loop import processes_meet, train_to_end
from resync.runs.train.losses import Diverged
from resync.runs.train.publish import publish
from resync.runs.train.saving import resume, save
from resync.runs.train.search import search
from resync.runs.train.session import Session
from resync.runs.train.watchdog import Watchdog, roll_call_store

TIMEOUT_SECONDS = Resources().timeout_seconds
_POLL_SECONDS = 0.05


def train(run: Run, out: Path, timeout: float = TIMEOUT_SECONDS) -> bool:
    """Train `run` and write its results to `out` (docs/design.md, "A run and its results").

    Every process of the run calls this; torchrun's environment variables give its rank. A run that finds its own
    checkpoint in `out` continues from it. A run that diverges ends with results that say so. A process that completes
    no step for `timeout` seconds ends.

    Returns False if SIGTERM or SIGUSR1 has stopped the run: it then leaves a checkpoint, but no results.
    Raises KeyboardInterrupt if Ctrl-C has, likewise with a checkpoint, or twice and at once; ValueError if the model,
    the data or the number of processes does not fit.
    """
    torch.set_num_threads(run.threads)
    # Longer than the watchdog's limit, even on a busy machine, because the watchdog reports more.
    limit = timedelta(seconds=2 * timeout + 120)
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    connect = roll_call_store if world_size > 1 else None
    watchdog = Watchdog(timeout, rank, world_size, connect, partial(state.fail, out, run))
    for products in (torch.backends.cuda.matmul, torch.backends.cudnn):
        products.allow_tf32 = run.precision == "tf32"
    with (
        _only_job(run, out) if rank == 0 else nullcontext(),
        state.failures_recorded(out, run),
        Interruption.await_signals() as interruption,
        watchdog.watching(),
        _process_group(run, rank, world_size, limit) as device,
    ):
        watchdog.beat(0)
        if device.type == "cpu":
            keep_freed_memory()
        if rank == 0:
            state.begin(out, run)
        ended = _train_and_publish(run, out, (device, rank, world_size, limit), interruption, watchdog)
    if not ended and interruption.received is signal.SIGINT:
        raise KeyboardInterrupt
    return ended


@contextmanager
def _only_job(run: Run, out: Path) -> Iterator[None]:
    """Wait until no other job trains in this folder. Raises ValueError if that has left other results."""
    with locked(out):
        refuse_other_results(out, run.hash)
        yield


def _train_and_publish(
    run: Run, out: Path, place: tuple[torch.device, int, int, timedelta], interruption: Interruption, watchdog: Watchdog
) -> bool:
    job = provenance.TrainingJob(place[0])
    session = build(run, out, *place)
    session.job = job
    if session.log:
        write_text(out / "run.yaml", run.to_yaml())
        chosen = " (chosen by auto)" if run.engine.name == "auto" else ""
        print(f"{run.id}: engine {session.engine.name}{chosen}", flush=True)
    try:
        resume(session)
        if session.log:
            state.record(out, run, "running", session.sync.steps, "")
        diverged = _train(session, interruption, watchdog, out / state.HOLD)
        session.sync.close()
        publish(session, out, diverged)
    except Interrupted as stop:
        session.sync.close()
        if session.log:
            state.record(out, run, "stopped", session.sync.steps, str(stop))
            print(f"{run.id}: {stop}", flush=True)
        return False
    finally:
        session.data.close()
        if session.log:
            session.log.close()
    return True


def _train(session: Session, interruption: Interruption, watchdog: Watchdog, hold: Path) -> Diverged | None:
    last = session.run.total_steps
    held = (
        int(hold.read_text(encoding="utf-8")) if session.log and hold.exists() else inf
    )  # a search may take more than `last` steps
    searches = session.run.search is not None

    def after_step() -> None:
        steps = session.sync.steps
        watchdog.beat(steps)
        if not searches and (steps >= last or not processes_meet(session)):
            return
        if steps >= held:
            _wait_for_stop(session, interruption, hold)
        asked, overdue = session.transport.any(interruption.received is not None, session.checkpoints.is_overdue)
        if asked or overdue:
            save(session)
        if asked:
            name = interruption.received.name if interruption.received else "a signal to another process"
            of = "" if searches else f" of {last}"
            raise Interrupted(f"{name}: stops after step {steps}{of} with a checkpoint")

    try:
        if searches:
            search(session, after_step)
        else:
            train_to_end(session, after_step)
    except Diverged as stop:
        if session.log:
            print(f"{session.run.id}: {stop}; the run ends here as diverged", flush=True)
        return stop
    return None


def _wait_for_stop(session: Session, interruption: Interruption, hold: Path) -> None:
    """Say that the run is at the step of a rehearsal, which then asks it to stop by the way of any other run."""
    state.record(hold.parent, session.run, "running", session.sync.steps, "")
    while interruption.received is None:
        time.sleep(_POLL_SECONDS)
    hold.unlink()


@contextmanager
def _process_group(run: Run, rank: int, world_size: int, limit: timedelta) -> Iterator[torch.device]:
    device = _device(run)
    alone = world_size == 1
    if alone and run.engine.name != "deepspeed":
        yield device
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    if not alone:  # a process that outlived its launcher would run beside its successor
        end_with_parent(signal.SIGKILL)
    # Until all have joined, a signal ends this process: Python would see it only then, and if another rank has died,
    # the launcher would wait for this one.
    with handled(signal.SIG_DFL):
        store = dist.HashStore() if alone else None  # DeepSpeed wants a group of one process, too
        dist.init_process_group(backend, store=store, timeout=limit, rank=rank, world_size=world_size)
    try:
        yield device
    finally:
        dist.destroy_process_group()


def _device(run: Run) -> torch.device:
    if run.device == "cpu" or (run.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("device is cuda, but torch finds no CUDA device here; allowed: auto, cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    return device
