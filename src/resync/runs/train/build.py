"""A session from the configuration of its run."""

from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import torch

from resync.runs.run import Run
from resync.runs.run.evaluated import evaluation_steps
from resync.runs.train.checkpoint import FORMAT, Checkpoints
from resync.runs.train.label_noise import LabelNoise
from resync.runs.train.language_model import LanguageModel
from resync.runs.train.log import RunLog
from resync.runs.train.losses import Losses, ValidationWatch
from resync.runs.train.mixup import Mixup
from resync.runs.train.objective import Classification, Objective
from resync.runs.train.quadratics import QuadraticValue
from resync.runs.train.session import BatchTransform, Session
from resync.runs.train.start import first_model
from resync.runs.train.swa import IterateAverage
from resync.runs.train.translation import Translation
from resync.tasks import data, models
from resync.tasks.data.gaussian_clusters import notebook_orders
from resync.tasks.data.heterogeneity import dirichlet_shares
from resync.tasks.data.sampling import Sampler, Share
from resync.workers import optim, sync
from resync.workers.engine.choose import engine_of
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.engine import EngineParts, Stacking
from resync.workers.engine.members import Members
from resync.workers.engine.settings import LossScale
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers
from resync.workers.sync.algorithm import Training

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The dtypes of autocast by precision."""


def build(
    run: Run, out: Path, device: torch.device, rank: int, world_size: int, timeout: timedelta | None = None
) -> Session:
    """The session of a run; rank 0 has the log. Raises ValueError for settings that a part refuses."""
    objective = _objective(run)
    members = Members(run.workers, run.gpus_per_worker, rank, world_size, timeout)
    transport, share = Transport(members, Clocks(device)), Share(members.replica_rank, members.processes)
    dataset = data.build(run.data.name, run.data.options).to(device)
    sampler = Sampler(
        num_samples=dataset.num_train,
        num_workers=run.workers,
        local_batch=run.local_batch_size,
        steps=run.steps_per_epoch,
        seed=run.seed,
        replacement=run.sampling == "with_replacement",
        share=share,
        of_workers=dirichlet_shares(dataset.train_labels, run.workers, run.heterogeneity.alpha, run.seed)
        if run.heterogeneity
        else None,
        orders=notebook_orders(run.seed, run.total_steps * run.local_batch_size) if run.random_numbers else None,
        last_batch=run.samples_left // run.workers if run.last_batch else None,
    )
    transforms, classes = list[BatchTransform](), run.facts["num_classes"]
    if run.loss.label_noise:
        transforms.append(LabelNoise(run.loss.label_noise, classes, run.seed, share))
    if run.loss.mixup:
        transforms.append(Mixup(run.loss.mixup, classes, run.micro_batches, run.seed, share))
    model, digest = first_model(run, out)
    model = model.to(device, memory_format=getattr(torch, run.memory_format)) if run.memory_format else model.to(device)
    workers = Workers(model, transport.num_local)
    optimizer = optim.build(run.optimizer, workers, apart=run.sync.needs.separate_optimizer_steps)
    stacking = None  # for a model that the engine `stacked` cannot compute
    if run.model.stacked_form and isinstance(objective, Classification | LanguageModel):
        # Whether it pays was measured in fp32, not compiled, and with workers that step together.
        apart = run.clock and run.sync.needs.separate_optimizer_steps
        measured = run.precision == "fp32" and not run.compile and not apart
        sample = models.example(run.model, run.facts["input_shape"], 1) if measured else None
        stacking = Stacking(run.model.stacked_form, objective.training_losses, sample, run.forward_batch_size)
    parts = EngineParts(
        transport,
        workers,
        optimizer,
        objective.training_loss,
        may_average=run.sync.needs.engine_may_average,
        micro_batches=run.micro_batches,
        clip_norm=run.clip_norm,
        loss_scale=(run.loss_scale or LossScale()) if run.precision == "fp16" else None,
        dropout_seed=run.seed,
        compile=run.compile,
        stacking=stacking,
    )
    engine = engine_of(run.engine, parts)
    training = Training(
        workers, transport, optimizer, run.total_steps, run.warmup_steps, run.seed, engine.averages_gradients,
        run.clock, partial(np.random.RandomState, run.seed) if run.random_numbers else None,
    )  # fmt: skip
    # What must be the same for a run to continue from a checkpoint: configuration, data, start and format.
    identity = " ".join(filter(None, [run.hash, dataset.sha256, digest, FORMAT]))
    return Session(
        run=run,
        clocks=transport.clocks,
        transport=transport,
        data=dataset,
        sampler=sampler,
        transforms=tuple(transforms),
        workers=workers,
        optimizer=optimizer,
        engine=engine,
        sync=sync.build(run.sync.in_steps(run.steps_per_epoch), training),
        schedule=run.lr,
        watch=ValidationWatch(run.plateau, run.early_stopping),
        objective=objective,
        losses=Losses(transport.num_local, device, objective.training_metrics, objective.training_means),
        evaluation_steps=evaluation_steps(run),
        checkpoints=Checkpoints(out / "checkpoint", identity, run.checkpoint, run.kept_steps, transport),
        log=RunLog(out, run) if rank == 0 else None,
        swa=None if (since := run.evaluation.swa_from) is None else IterateAverage(round(since * run.steps_per_epoch)),
    )


def _objective(run: Run) -> Objective:
    given = run.loss.label_smoothing, HALF.get(run.precision), run.micro_batches
    match run.task:
        case "translation":
            language = run.facts["target_language"]
            return Translation(*given, run.sync.needs.average_gradients, run.evaluation.beam_search, language)
        case "language_model":
            return LanguageModel(*given)
        case "quadratics":
            return QuadraticValue(*given, run.workers, run.seed)
        case _:
            return Classification(*given)
