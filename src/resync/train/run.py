"""One run from its configuration to its results."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from resync.config import Run
from resync.files import write_text
from resync.train import provenance
from resync.train.checkpoint import parameters_sha256, save_model
from resync.train.log import METRICS
from resync.train.loop import consensus, train_to_end
from resync.train.losses import Diverged
from resync.train.session import Session

PROCESS_TIMEOUT = timedelta(minutes=5)
"""A process that waits longer than this for another one gives up."""


def train(run: Run, out: Path) -> None:
    """Train `run` and write its results to `out` (see the design of a run's folder in README.md).

    Every process of the run calls this; torchrun's variables say which one it is. A run that finds its own
    checkpoint in `out` continues from it. A run that diverges ends with results that say so.

    Raises ValueError when the model, the data or the number of processes does not fit.
    """
    torch.set_num_threads(run.threads)
    for products in (torch.backends.cuda.matmul, torch.backends.cudnn):
        products.allow_tf32 = run.precision == "tf32"
    with _process_group(run) as (rank, world_size, device):
        started = provenance.now()
        if rank == 0:
            write_text(out / "run.yaml", run.to_yaml())
        session = Session.build(run, out, device, rank, world_size)
        try:
            session.resume()
            diverged = _train(session)
            session.sync.close()
            _publish(session, out, started, diverged)
        finally:
            if session.log:
                session.log.close()


def _train(session: Session) -> Diverged | None:
    try:
        train_to_end(session)
    except Diverged as stop:
        if session.log:
            print(f"{session.run.id}: {stop}; the run ends here as diverged", flush=True)
        return stop
    return None


def _publish(session: Session, out: Path, started: str, diverged: Diverged | None) -> None:
    """Write the averaged model and, on rank 0, the tables and the summary."""
    with consensus(session) as model:
        digest = parameters_sha256(session.workers.rows[0])
        if session.log and not diverged:
            save_model(out / "model.pt", model)
    if session.log:
        session.log.finish(_summary(session, started, digest, diverged))


def _summary(session: Session, started: str, digest: str, diverged: Diverged | None) -> dict[str, Any]:
    assert session.log is not None
    run, transport, rows = session.run, session.transport, session.log.rows[METRICS]
    ended = provenance.now()
    wall = (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds()
    best = {
        name: choose((row[name] for row in rows if isfinite(row[name])), default=None)
        for name, choose in ({"train_loss": min} | session.objective.best).items()
    }
    return {
        "status": "diverged" if diverged else "finished",
        "run": run.id,
        "scale": run.scale,
        "seed": run.seed,
        "config_hash": run.hash,
        "data": {"name": run.data.name, "variant": session.data.variant, "sha256": session.data.sha256},
        "steps": session.sync.steps,
        "rounds": session.sync.rounds,
        "volume_percent": _number(session.volume_percent),
        "bytes_sent": transport.bytes_sent,
        "wire_bytes": transport.wire_bytes,
        "parameters": session.workers.num_parameters,
        "final": {name: _number(rows[-1][name]) for name in best},
        "best": best,
        "seconds": {
            "train": rows[-1]["train_seconds"],
            "communication": rows[-1]["communication_seconds"],
            "evaluation": rows[-1]["evaluation_seconds"],
            "wall": wall,
        },
        "parameters_sha256": digest,
        "diverged": {"step": diverged.step, "worker": diverged.worker} if diverged else None,
        "resumed_from": session.resumed_from,
        "started": started,
        "ended": ended,
        "launch": {
            "world_size": transport.world_size,
            "workers": run.workers,
            "device": _device_name(session.clocks.device),
            "host": provenance.host(),
            "threads": run.threads,
        },
        "versions": provenance.versions(),
        "git": provenance.git(),
    }


@contextmanager
def _process_group(run: Run) -> Iterator[tuple[int, int, torch.device]]:
    """Join the processes that torchrun started: rank, number of processes, and this one's device."""
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = _device(run)
    if world_size == 1:
        yield rank, world_size, device
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=PROCESS_TIMEOUT)
    try:
        yield rank, world_size, device
    finally:
        dist.destroy_process_group()


def _device(run: Run) -> torch.device:
    if run.device == "cpu" or (run.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError("device is cuda, but torch finds no CUDA device here; allowed: auto, cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    return device


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _number(value: float) -> float | None:
    """`value`, or None for what is no number: JSON has no NaN."""
    return value if isfinite(value) else None
