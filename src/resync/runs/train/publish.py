"""The results of a run that has ended: its model, its logs and its summary."""

import socket
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from resync.base.files import write_text
from resync.base.processes import surroundings
from resync.runs.metrics.registry import BEST, EVALUATED, METRICS
from resync.runs.results import state
from resync.runs.results.summary import trained
from resync.runs.train import provenance
from resync.runs.train.checkpoint import save_model
from resync.runs.train.evaluate import consensus
from resync.runs.train.language_model import sample
from resync.runs.train.log import EVALUATIONS
from resync.runs.train.losses import Diverged
from resync.runs.train.session import Session


def publish(session: Session, out: Path, diverged: Diverged | None) -> None:
    """Write the results of a run that has ended; collective, and only the process with the log writes."""
    with consensus(session) as model:
        digest = session.workers.sha256()
        files = [out / "model.pt"] if not diverged else []
        if session.log and files:
            save_model(files[0], model)
            if characters := session.run.evaluation.sample_characters:
                files.append(out / "sample.txt")
                text = sample(model, session.objective, session.data, session.run.seed, characters)
                write_text(files[-1], text + "\n")
    if session.log:
        session.log.finish(_summary(session, digest, diverged), files)
        state.clear(out)


def _summary(session: Session, digest: str, diverged: Diverged | None) -> dict[str, Any]:
    assert session.log is not None
    run, transport, rows = session.run, session.transport, session.log.rows[EVALUATIONS]
    jobs, device = session.jobs, session.clocks.device
    wall = [job["seconds"] for job in jobs]
    best = {name: METRICS[name].best_of(row[name] for row in rows) for name in BEST if name in rows[-1]}
    return {
        "status": "diverged" if diverged else "finished",
        "run": run.id,
        "scale": run.scale,
        "seed": run.seed,
        "config_hash": run.hash,
        "overrides": list(run.overrides or ()),
        "data": {
            "name": run.data.name,
            "variant": session.data.variant,
            "sha256": session.data.sha256,
            "verified": session.data.verified,
        },
        "steps": session.sync.steps,
        "stopped_early": session.watch.stop,
        "rounds": session.sync.rounds,
        "volume_percent": _number(session.volume_percent),
        "bytes_sent": transport.bytes_sent,
        "wire_bytes": transport.wire_bytes,
        "parameters": session.workers.num_parameters,
        "final": {name: _number(value) for name, value in rows[-1].items() if name in (*BEST, *EVALUATED)},
        "best": best,
        "signatures": session.objective.signatures,
        "seconds": {
            **{clock: _number(rows[-1][f"{clock}_seconds"]) for clock in ("training", "communication", "evaluation")},
            "wall": None if None in wall else sum(wall),
        },
        "parameters_sha256": digest,
        "diverged": {"step": diverged.step, "worker": diverged.worker} if diverged else None,
        "resumed_from": session.resumed_from,
        "jobs": jobs,
        "started": jobs[0]["started"],
        "ended": provenance.now(),
        "launch": {
            "world_size": transport.world_size,
            "workers": run.workers,
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "processor": provenance.PROCESSOR,
            "host": socket.gethostname(),
            "threads": run.threads,
            "engine": session.engine.name,
        },
        "versions": provenance.VERSIONS,
        "variables": surroundings.of_numbers(),
        "git": trained(jobs, session.sync.steps)[-1]["git"],
    }


def _number(value: float) -> float | None:
    """`value`, or None if it is NaN or infinite, which JSON cannot represent."""
    return value if isfinite(value) else None
