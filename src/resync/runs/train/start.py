"""The start of a run from the averaged model of another run, at its end or in a checkpoint that it has kept."""

from pathlib import Path

import torch
from torch import nn

from resync.base.errors import UserError
from resync.runs.results.errors import ResultsError
from resync.runs.results.summary import DIGESTS, digest_of, left_out, read_summary, require_unchanged
from resync.runs.results.summary import NAME as SUMMARY
from resync.runs.run import Run
from resync.runs.train.checkpoint import MODEL, checkpoint_folder, model_sha256, require_sound


def load_start(model: nn.Module, run: Run, out: Path) -> None:
    """Load the model of the run that `run.start_from` names, whose folder is beside the run's own folder `out`."""
    file = _model_file(run, run.start_folder(out))
    state = torch.load(file, map_location="cpu", weights_only=True)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{run.id}: start_from {run.start_from}: the model does not fit: {reason}") from None


def digest_of_start(run: Run, out: Path) -> str:
    """SHA-256 of the model that a run starts from: another when the run that `run.start_from` names trains again."""
    folder = run.start_folder(out)
    try:
        if run.start_step is not None:
            return model_sha256(checkpoint_folder(folder, run.start_step))
        return str(read_summary(folder / SUMMARY)[DIGESTS][MODEL])
    except (ResultsError, ValueError) as error:
        raise UserError(f"{run.id}: start_from {run.start_from}: {error}") from None


def _model_file(run: Run, folder: Path) -> Path:
    prefix = f"{run.id}: start_from {run.start_from}:"
    if run.start_step is not None:
        kept = checkpoint_folder(folder, run.start_step)
        try:
            require_sound(kept, str(run.start_hash))
        except ValueError as error:
            raise UserError(f"{prefix} {error}; delete {folder} to train that run again") from None
        return kept / MODEL
    model = folder / MODEL
    try:
        summary = read_summary(folder / SUMMARY)
        if MODEL in left_out(summary):
            raise ResultsError(f"{folder} is of an archive, which has no {MODEL}; train that run again")
        if summary["status"] == "finished":
            require_unchanged(model, digest_of(model), summary)
    except ResultsError as error:
        raise UserError(f"{prefix} {error}") from None
    if summary["config_hash"] != run.start_hash:
        found = f"found results of the configuration {summary['config_hash']}, allowed: {run.start_hash}"
        raise UserError(f"{prefix} {found}; train that run again")
    if summary["status"] != "finished":
        raise UserError(f"{prefix} found a run that ended as {summary['status']}, allowed: finished")
    return model
