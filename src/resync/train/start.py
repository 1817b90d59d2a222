"""The start of a run from the final averaged model of another run."""

import json
from pathlib import Path

import torch
from torch import nn

from resync.config import Run


def load_start(model: nn.Module, run: Run, out: Path) -> None:
    """Load the model of the run that `run.start_from` names, whose folder is beside the run's own folder `out`.

    Raises ValueError if that run is missing, did not finish or had another configuration, or if its model has other
    parameters.
    """
    folder = out.parents[2] / str(run.start_from)
    try:
        summary = json.loads((folder / "summary.json").read_text())
    except FileNotFoundError:
        raise ValueError(f"{run.id}: start_from {run.start_from}: {folder / 'summary.json'} does not exist") from None
    if summary["config_hash"] != run.start_hash:
        found = f"found results of the configuration {summary['config_hash']}, allowed: {run.start_hash}"
        raise ValueError(f"{run.id}: start_from {run.start_from}: {found}; train that run again")
    if summary["status"] != "finished":
        found = f"found a run that ended as {summary['status']}, allowed: finished"
        raise ValueError(f"{run.id}: start_from {run.start_from}: {found}")
    state = torch.load(folder / "model.pt", map_location="cpu", weights_only=True)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{run.id}: start_from {run.start_from}: the model does not fit: {reason}") from None
