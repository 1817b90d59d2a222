"""Small runs for the tests of training, as configurations and as sessions."""

import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from processes import run_processes

from resync.base.settings.base import PACKAGE
from resync.base.settings.options import option_names, options_of
from resync.runs.run import Run
from resync.runs.train.build import build
from resync.runs.train.loop import batches, train_step, train_to_end
from resync.runs.train.saving import resume, save
from resync.runs.train.session import Session
from resync.workers.sync.options.rounds import RoundsOptions

BASE: dict[str, Any] = {
    "paper": "test",
    "experiment": "small",
    "series": "one",
    "scale": "smoke",
    "seed": 3,
    "data": {"name": "digits"},
    "model": {"name": "mlp", "hidden": [16]},
    "workers": 4,
    "batch_size": 64,
    "epochs": 2,
    "steps_per_epoch": 7,
    "optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.001},
    "schedule": {"name": "cosine", "max_lr": 0.1, "min_lr": 0.001, "warmup_steps": 3},
    "sync": {"name": "allreduce"},
    "checkpoint": {"every_rounds": 100},
    "log": {"every_steps": 5, "wandb": "disabled"},
    "device": "cpu",
}


def sync(name: str, **options: Any) -> dict[str, Any]:
    return {"sync": {"name": name} | options}


def every(h: int) -> dict[str, Any]:
    return {"rule": "constant", "h": h}


def adamw(**options: Any) -> dict[str, Any]:
    return {"optimizer": {"name": "adamw"} | options}


def constant_lr(lr: float) -> dict[str, Any]:
    return {"schedule": {"name": "constant", "lr": lr}}


OWN: dict[str, Any] = {"also": "workers"}
MOMENTUM = {"average_state": ["momentum_buffer"]}
QSR = {"rule": "power", "alpha": 0.15, "power": 2, "h_base": 2}
CNN_WITH_BATCH_NORM = {
    "model": {"name": "cnn", "norm": "batch"},
    "evaluation": {"bn_batches": 3, "sharpness_batches": 3} | OWN,
} | sync("local", period=every(2))
# Two buckets of sentence pairs a worker and step, in passes of their own. The bias of an attention's keys has no
# gradient but rounding errors, which Adam would blow up with a smaller eps.
TRANSLATION = {
    "data": {"name": "sentences", "max_tokens": 64},
    "model": {
        "name": "transformer", "dim": 8, "ffn_dim": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1,
        "dropout": 0.2,
    },
    "batch_size": 8,
    "micro_batch_size": 1,
    "loss": {"label_smoothing": 0.1},
    "schedule": {"name": "inverse_sqrt", "max_lr": 0.01, "warmup_steps": 4},
    "evaluation": {"every_epochs": 2},
} | adamw(beta2=0.98, eps=1e-4)  # fmt: skip
LANGUAGE_MODEL = {
    "data": {"name": "sonnets", "context": 16},
    "model": {"name": "gpt", "layers": 2, "heads": 2, "dim": 8, "dropout": 0.2},
    "batch_size": 16,
    "micro_batch_size": 2,
    "sampling": "with_replacement",
    "clip_norm": 1.0,
    "schedule": {"name": "cosine", "max_lr": 0.01, "warmup_steps": 3},
    "evaluation": {"random_batches": 3, "sharpness_batches": 2} | OWN,
    **adamw(beta2=0.99, eps=1e-4, weight_decay=0.1, decay="matrices_and_embeddings"),
    **sync("local", period=every(3)),
}
DECAYED = adamw(weight_decay=0.05)
VARIANTS: dict[str, dict[str, Any]] = {
    "allreduce": {},
    "allreduce_clipped_micro_batches": {"clip_norm": 0.5, "micro_batch_size": 4},
    "local_label_noise_fp16": {"loss": {"label_noise": 0.1}, "precision": "fp16"} | sync("local", period=every(4)),
    "allreduce_fp16": {"precision": "fp16", "loss_scale": {"initial": 1e9, "interval": 3}},
    "allreduce_adamw": DECAYED,
    "allreduce_ring": sync("allreduce", all_reduce="ring"),
    "allreduce_parameters_adamw": DECAYED | sync("allreduce", average="parameters", all_reduce="recursive_doubling"),
    "local": sync("local", period=every(4)) | {"evaluation": {"every_rounds": 2, "swa_from": 0.2}},
    "local_adamw": DECAYED | sync("local", period=every(4)),
    "qsr": sync("local", period=QSR),
    "sgp": sync("sgp"),
    "sgp_two_peers_with_replacement": sync("sgp", peers=2) | {"sampling": "with_replacement"},
    "sgp_weighted": sync("sgp", topology="random", peers=2) | {"evaluation": OWN},
    "sgp_hybrid": sync("sgp", peers=[[0, 0], [0.5, 2], [1, 1]]),
    "sgp_double_averaging": sync("sgp", topology="directed_exponential", peers=2, **MOMENTUM),
    "slowmo_sgp_double_averaging": constant_lr(0.05)
    | sync("slowmo", period=every(4), base={"name": "sgp", "topology": "random"} | MOMENTUM),
    "osgp": sync("osgp") | {"evaluation": OWN},
    "osgp_stale_two_peers": sync("osgp", peers=[[0, 2], [1, 1]], staleness=2),
    "osgp_biased_adamw": adamw() | sync("osgp", topology="symmetric_exponential", biased=True),
    "dpsgd": sync("dpsgd"),
    "dpsgd_half_duplex": sync("dpsgd", half_duplex=True),
    "dpsgd_base_graph": {"workers": 12, "batch_size": 48} | sync("dpsgd", topology="base_graph"),
    "sgp_two_mixing_steps": adamw() | sync("sgp", mixing_steps=2, average_state=["exp_avg"]),
    "d2_tree_adamw": DECAYED | sync("d2", topology="binary_tree"),
    "gradient_tracking": sync("gradient_tracking", weight=0.3) | {"evaluation": OWN},
    "relaysum": sync("relaysum"),
    "relaysum_gradients_chain": {"clip_norm": 0.5} | sync("relaysum", relayed="gradient", topology="chain"),
    "dpsgd_star": {"workers": 8} | sync("dpsgd", topology="star", weight=0.1),
    "sgp_equistatic": sync("sgp", topology="u_equistatic", peers=[[0, 0], [0.5, 3]]),
    "osgp_equidyn": sync("osgp", topology="ou_equidyn") | {"evaluation": OWN},
    "adpsgd": sync("adpsgd") | {"evaluation": OWN},
    "adpsgd_jitter": sync("adpsgd") | {"clock": {"step_seconds": [1.0], "jitter": 1.0}} | {"evaluation": OWN},
    "adpsgd_straggler_adamw": DECAYED
    | {"clock": {"step_seconds": [3.0, 1.0, 1.0, 1.0], "away": [[2, 2.5, 6.0]]}}
    | sync("adpsgd"),
    "post_local": sync("local", period={"rule": "phases", "phases": [[0, 1], [1, 3]]}),
    "swap": sync("local", period={"rule": "phases", "phases": [[0, 2], [1, "end"]]}),
    "local_average_state": DECAYED | sync("local", period=every(4), average_state=["exp_avg", "exp_avg_sq"]),
    "slowmo": sync("slowmo", period=every(4), buffers="zero"),
    "slowmo_allreduce": sync("slowmo", period=every(4), base="allreduce"),
    "slowmo_sgp": sync("slowmo", period=every(4), base="sgp") | {"evaluation": OWN},
    "slowmo_osgp_averaged_buffers": sync("slowmo", period=every(4), base="osgp", buffers="average"),
    "slowmo_without_average": sync("slowmo", period=every(3), base="sgp", average=False),
    "slowmo_osgp_without_average": sync("slowmo", period=every(3), base="osgp", average=False),
    "diloco": DECAYED | sync("diloco", period=every(4)),
    "diloco_int8": DECAYED | sync("diloco", period=every(4), compression="int8"),
    "diloco_progress": sync("diloco_progress", period=QSR, lr=0.5, momentum=0.5, reference=0.2),
    "muloco": constant_lr(0.02)
    | {"optimizer": {"name": "muon", "weight_decay": 0.01}}
    | sync("diloco", period=every(4), momentum=0.6),
    "snoo": adamw() | sync("snoo", period=every(4)),
    "gpa": adamw(weight_decay=0.1, decay="matrices") | constant_lr(0.01) | sync("gpa", h=4) | {"evaluation": OWN},
    "palsgd": DECAYED
    | constant_lr(0.01)
    | {"clip_norm": 1.0}
    | sync("palsgd", period=every(3), probability=0.4, start=0.5),
    "streaming_diloco": DECAYED | sync("streaming_diloco", period=8, fragments=2, delay=3, mixing=0.25),
    # A pixel that is black in all images of a worker gets a first moment from the others, and a step of lr / eps of it.
    "desloc": adamw(weight_decay=0.05, eps=1e-2) | {"clip_norm": 0.5} | sync("desloc", period=2, first_moment_period=3),
    "noloco": DECAYED | sync("noloco", period=every(3)) | {"evaluation": OWN},
    "async_local_sgd": DECAYED
    | {"clock": {"step_seconds": [1.0, 1.3, 2.1, 3.7]}}
    | sync("async_local_sgd", h=3, max_wait=1.0),
    "batch_norm": CNN_WITH_BATCH_NORM,
    "batch_norm_members": CNN_WITH_BATCH_NORM | {"gpus_per_worker": 2},
    "language_model": LANGUAGE_MODEL,
    "translation": TRANSLATION,
    "translation_sgp": TRANSLATION
    | sync("sgp")
    | {"evaluation": {"beam_search": {"beam_size": 2, "length_penalty": 0.6}} | OWN},
}
_NAMED = {changes.get("sync", BASE["sync"])["name"] for changes in VARIANTS.values()}
VARIANTS |= {
    name: sync(name, **({"period": every(3)} if issubclass(options_of("sync", name), RoundsOptions) else {}))
    for name in option_names("sync", PACKAGE)
    if name not in _NAMED
}
"""Every algorithm that exists, as changes of BASE; with its defaults, one that is not named above."""


def wanted(request: pytest.FixtureRequest, parameter: str) -> list[str]:
    """The values of a parameter in the tests of a fixture's module that are to run, without those `-k` leaves out."""
    items = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    return list(dict.fromkeys(item.callspec.params[parameter] for item in items if parameter in item.callspec.params))


def make_run(folder: Path, **changes: Any) -> Run:
    """BASE with some keys replaced, read from a file as every run is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(deepcopy(BASE) | changes))
    return Run.from_file(path)


def make_session(folder: Path, rank: int = 0, world_size: int = 1, **changes: Any) -> Session:
    """A session of such a run that writes to `folder`."""
    run = make_run(folder / f"config{rank}-{os.getpid()}", **changes)
    folder.mkdir(parents=True, exist_ok=True)
    return build(run, folder, torch.device(run.device), rank, world_size)


def trained(rank: int, world_size: int, folder: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """Train to the end: the local rows, what rank 0 logged, and the counts."""
    session = make_session(folder, rank, world_size, **changes)
    resume(session)
    train_to_end(session)
    return outcome(session)


def trained_until(rank: int, world_size: int, folder: Path, changes: dict[str, Any], steps: int) -> None:
    """Train a part of the first epoch as the loop does, save a checkpoint and stop as if killed."""
    session = make_session(folder, rank, world_size, **changes)
    for inputs, targets in batches(session):
        train_step(session, inputs, targets)
        if session.sync.steps == steps:
            break
    save(session)


def outcome(session: Session) -> dict[str, Any]:
    """What a test compares of a finished session."""
    return {
        "rows": session.workers.rows.detach().cpu().numpy().copy(),
        "log": session.log.rows if session.log else None,
        "bytes_sent": session.transport.bytes_sent,
        "wire_bytes": session.transport.wire_bytes,
        "rounds": session.sync.rounds,
        "resumed_from": session.resumed_from,
    }


def assert_runs_agree(folder: Path, changes: dict[str, Any], stop: int) -> None:
    """A run that continues after `stop` steps has the bits of one that was left alone; two processes its values."""
    whole = trained(0, 1, folder / "whole", changes)
    trained_until(0, 1, folder / "parts", changes, stop)
    parts = trained(0, 1, folder / "parts", changes)
    assert parts["resumed_from"] == [stop]
    assert np.array_equal(parts["rows"], whole["rows"])
    rows = np.concatenate([rank["rows"] for rank in run_processes(2, trained, folder / "two", changes)])
    np.testing.assert_allclose(rows, whole["rows"], rtol=0, atol=1e-6)
