"""Saving a session to a checkpoint and continuing from one."""

import time
from collections.abc import Iterable

import torch

from resync.base.errors import UserError
from resync.runs.train.checkpoint import Checkpoints, State, copy_to_cpu
from resync.runs.train.evaluate import consensus
from resync.runs.train.provenance import UNKNOWN_JOBS
from resync.runs.train.session import Session


def save(session: Session) -> None:
    """Write a checkpoint of the current state, with the averaged model if it is to be kept. Collective.

    Does nothing if the newest checkpoint already has this state.
    """
    steps, checkpoints = session.sync.steps, session.checkpoints
    if steps == checkpoints.newest:
        return
    began = time.monotonic()
    workers, shared = _state(session)
    if steps not in checkpoints.kept:
        checkpoints.save(steps, workers, shared)
    else:
        with consensus(session) as model:
            checkpoints.save(steps, workers, shared, model)
    session.job.checkpoint_seconds = time.monotonic() - began


def checkpoint_is_due(session: Session, round_ended: bool) -> bool:
    """Whether the step just taken is one after which the settings ask for a checkpoint, by count."""
    settings, steps = session.run.checkpoint, session.sync.steps
    every_epochs = settings.every_epochs and settings.every_epochs * session.run.steps_per_epoch
    counts = [(steps, settings.every_steps), (steps, every_epochs)]
    if round_ended:
        counts.append((session.sync.rounds, settings.every_rounds))
    if session.sync.asynchronous:
        by_count = steps in session.evaluation_steps
    else:
        by_count = any(every and count % every == 0 for count, every in counts)
    return by_count or steps in session.checkpoints.kept or session.has_ended()


def _state(session: Session) -> tuple[list[State], State]:
    shared: State = {"resumed_from": session.resumed_from, "jobs": session.jobs}
    workers: list[State] = [{} for _ in range(session.workers.num_local)]
    for name, part in session.parts.items():
        state = dict(part.state_dict())
        own = state.pop("workers", None)
        shared[name] = state
        for index, worker in enumerate(workers if own is not None else []):
            worker[name] = {key: copy_to_cpu(value[index]) for key, value in own.items()}
    return workers, shared


def resume(session: Session) -> None:
    """Continue from the run's own newest checkpoint, or else from that of another run, if it names one."""
    loaded = session.checkpoints.load()
    if loaded is not None:
        _restore(session, *loaded, session.parts)
        session.resumed_from = [*loaded[1]["resumed_from"], session.sync.steps]
        _follow(session, loaded[1])
        return
    if session.log:
        session.log.begin_anew()
    if session.run.start_state == "all":
        _continue_other(session)


def _continue_other(session: Session) -> None:
    """Continue from the checkpoint of another run of the same workers, model, optimizer and algorithm."""
    run = session.run
    identity = f"{run.start_hash} {session.data.sha256}"
    folder = run.start_folder(session.checkpoints.directory.parent)
    others = Checkpoints(folder / "checkpoint", identity, run.checkpoint, (), session.transport)
    assert run.start_step is not None
    try:
        workers, shared = others.load_after(run.start_step)
        # Decisions from the validation loss are this run's own.
        _restore(session, workers, shared, set(session.parts) - {"watch", "log"})
    except (ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{run.id}: start_from {run.start_from}: {reason}") from None
    _follow(session, shared)
    if session.log:
        session.log.adopt(shared["log"])


def _follow(session: Session, shared: State) -> None:
    """Let this job follow those that have made a checkpoint, whose clocks and counts it continues."""
    session.earlier_jobs = shared.get("jobs", UNKNOWN_JOBS)
    session.job.first_step = session.sync.steps


def _restore(session: Session, workers: list[State], shared: State, names: Iterable[str]) -> None:
    for name in [name for name in session.parts if name in names]:
        state = shared[name]
        if name in workers[0]:
            fields = workers[0][name]
            state |= {"workers": {key: torch.stack([worker[name][key] for worker in workers]) for key in fields}}
        session.parts[name].load_state_dict(state)
