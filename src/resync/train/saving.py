"""Saving a session to a checkpoint and continuing from one."""

import torch

from resync.train.checkpoint import State, owned
from resync.train.session import Session


def save(session: Session) -> None:
    """Write a checkpoint of the current state. Collective."""
    shared: State = {"resumed_from": session.resumed_from}
    workers: list[State] = [{} for _ in range(session.workers.num_local)]
    for name, part in session.parts.items():
        state = dict(part.state_dict())
        own = state.pop("workers", None)
        shared[name] = state
        for index, worker in enumerate(workers if own is not None else []):
            worker[name] = {key: owned(value[index]) for key, value in own.items()}
    session.checkpoints.save(session.sync.steps, workers, shared)


def resume(session: Session) -> None:
    """Continue from the run's own newest checkpoint, if there is one. Collective.

    Raises ValueError if the checkpoint was written by an engine with another state format.
    """
    found = session.checkpoints.load()
    if found is None:
        return
    workers, shared = found
    for name, part in session.parts.items():
        state = shared[name]
        if name in workers[0]:
            names = workers[0][name]
            state |= {"workers": {key: torch.stack([worker[name][key] for worker in workers]) for key in names}}
        part.load_state_dict(state)
    session.resumed_from = [*shared["resumed_from"], session.sync.steps]
