"""The model with which a run starts: initial weights, another run's averaged model, or an original's checkpoint."""

from pathlib import Path

import torch
from torch import nn

from resync.base.errors import UserError
from resync.base.streams import stream_seed
from resync.runs.results.errors import ResultsError
from resync.runs.results.summary import DIGESTS, digest_of, left_out, read_summary, require_unchanged
from resync.runs.results.summary import NAME as SUMMARY
from resync.runs.run import Run
from resync.runs.train.checkpoint import MODEL, checkpoint_folder, require_sound
from resync.tasks import models
from resync.tasks.models.originals import load_original
from resync.tasks.prepare import data_root


def first_model(run: Run, out: Path) -> tuple[nn.Module, str]:
    """The model before the first step, and the SHA-256 of that of another run from which it starts.

    The other run, which `run.start_from` names, has its folder beside the run's own folder `out`. The digest is another
    one when that run trains again; it is empty if there is none.
    """
    named, digest = f"{run.id}: start_from {run.start_from}:", ""
    if run.start_from:
        try:
            file, digest = _model_of_other(run, run.start_folder(out))
        except ValueError as error:
            raise UserError(f"{named} {error}") from None
    seed = run.seed if run.random_numbers else stream_seed(run.seed, "init")
    if run.weights_seed is not None:
        seed = run.weights_seed
    model = models.build(run.model, run.facts["input_shape"], run.facts["num_classes"], seed)
    if digest and run.start_state != "all":  # else all of that checkpoint is restored when the session is complete
        state = torch.load(file, map_location="cpu", weights_only=True)
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise UserError(f"{named} the model does not fit: {' '.join(str(error).split())}") from None
    if run.start_checkpoint:
        load_original(model, data_root(run.data.component) / run.start_checkpoint)
    return model, digest


def _model_of_other(run: Run, folder: Path) -> tuple[Path, str]:
    """The file of a run's averaged model, at its end or in a checkpoint that it has kept, and its SHA-256."""
    if run.start_step is not None:
        kept = checkpoint_folder(folder, run.start_step)
        try:
            digests = require_sound(kept, str(run.start_hash))
            if MODEL not in digests:
                raise UserError(f"{kept} has no {MODEL}")
        except ValueError as error:
            raise UserError(f"{error}; delete {folder} to train that run again") from None
        return kept / MODEL, digests[MODEL]
    model, summary = folder / MODEL, read_summary(folder / SUMMARY)
    if MODEL in left_out(summary):
        raise ResultsError(f"{folder} is of an archive, which has no {MODEL}; train that run again")
    if summary["status"] == "finished":
        require_unchanged(model, digest_of(model), summary)
    if summary["config_hash"] != run.start_hash:
        found = f"found results of the configuration {summary['config_hash']}, allowed: {run.start_hash}"
        raise UserError(f"{found}; train that run again")
    if summary["status"] != "finished":
        raise UserError(f"found a run that ended as {summary['status']}, allowed: finished")
    return model, str(summary[DIGESTS][MODEL])
