"""A session from the configuration of its run."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from resync.base.streams import stream_seed
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
from resync.runs.train.start import digest_of_start, load_start
from resync.runs.train.swa import IterateAverage
from resync.runs.train.translation import Translation
from resync.tasks import data, models
from resync.tasks.data.gaussian_clusters import notebook_orders
from resync.tasks.data.heterogeneity import dirichlet_shares
from resync.tasks.data.sampling import Sampler, Share
from resync.tasks.models.originals import load_original
from resync.tasks.prepare import data_root
from resync.workers import optim, sync
from resync.workers.engine import choose
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.engine import Engine, EngineParts, LossScales
from resync.workers.engine.members import Members
from resync.workers.engine.settings import LossScale
from resync.workers.engine.stacked import Stacking, stacking_pays
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers
from resync.workers.sync.algorithm import Training

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The dtypes of autocast by precision."""


def build(
    run: Run, out: Path, device: torch.device, rank: int, world_size: int, timeout: timedelta | None = None
) -> Session:
    """The session of a run; rank 0 has the log. Raises ValueError for settings that a part refuses."""
    clocks, members = Clocks(device), Members(run.workers, run.gpus_per_worker, rank, world_size, timeout)
    transport = Transport(run.workers, clocks, rank, world_size, members)
    share = Share(members.replica_rank, members.processes)
    dataset = data.build(run.data.name, run.data.options).to(device)
    model = _model(run, out).to(device)
    if run.memory_format:
        model = model.to(memory_format=getattr(torch, run.memory_format))
    workers = Workers(model, transport.num_local)
    optimizer = optim.build(run.optimizer, workers, apart=run.sync.needs.separate_optimizer_steps)
    objective = _objective(run)
    engine = _engine(run, transport, workers, optimizer, objective)
    training = Training(
        workers, transport, optimizer, run.total_steps, run.warmup_steps, run.seed, engine.averages_gradients,
        run.clock, partial(np.random.RandomState, run.seed) if run.random_numbers else None,
    )  # fmt: skip
    start = [digest_of_start(run, out)] if run.start_from else []
    # What must be the same for a run to continue from a checkpoint: configuration, data, start and format.
    identity = " ".join([run.hash, dataset.sha256, *start, FORMAT])
    return Session(
        run=run,
        clocks=clocks,
        transport=transport,
        data=dataset,
        sampler=Sampler(
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
        ),
        transforms=_transforms(run, share),
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


def _transforms(run: Run, share: Share) -> tuple[BatchTransform, ...]:
    classes, transforms = run.facts["num_classes"], list[BatchTransform]()
    if run.loss.label_noise:
        transforms.append(LabelNoise(run.loss.label_noise, classes, run.seed, share))
    if run.loss.mixup:
        transforms.append(Mixup(run.loss.mixup, classes, run.micro_batches, run.seed, share))
    return tuple(transforms)


def _model(run: Run, out: Path) -> nn.Module:
    seed = run.seed if run.random_numbers else stream_seed(run.seed, "init")
    model = models.build(run.model, run.facts["input_shape"], run.facts["num_classes"], seed)
    if run.start_from and run.start_state != "all":
        load_start(model, run, out)
    if run.start_checkpoint:
        load_original(model, data_root(run.data.component) / run.start_checkpoint)
    return model


def _engine(
    run: Run, transport: Transport, workers: Workers, optimizer: torch.optim.Optimizer, objective: Objective
) -> Engine:
    stacking = None  # for a model that the engine `stacked` cannot compute
    if run.model.stacked_form and isinstance(objective, Classification | LanguageModel):
        stacking = Stacking(run.model.stacked_form, objective.training_losses)
    parts = EngineParts(
        workers,
        optimizer,
        objective.training_loss,
        transport.members,
        run.micro_batches // transport.members.processes,
        run.clip_norm,
        LossScales(run.loss_scale or LossScale(), transport.num_local) if run.precision == "fp16" else None,
        _dropout_seeding(run, workers.models[0], transport.local.start),
    )
    pays = _stacking_pays(run, workers.models[0])
    engine = choose.build(run.engine, parts, transport, run.sync.needs.engine_may_average, stacking, pays)
    if run.compile:
        engine.compile(run.compile)
    return engine


def _stacking_pays(run: Run, model: nn.Module) -> bool:
    if run.model.stacked_form is None or run.precision != "fp32" or run.compile:
        return False
    if run.clock and run.sync.needs.separate_optimizer_steps:  # workers step apart
        return False
    device = next(model.parameters()).device.type
    sample = models.example(run.model, run.facts["input_shape"], 1)
    return stacking_pays(run.model.stacked_form, model, sample, run.forward_batch_size, device)


def _dropout_seeding(run: Run, model: nn.Module, first_worker: int) -> Callable[[int, int, int], object] | None:
    """Seeding of dropout by member and step alone, independent of processes, repeated gradients and resumption."""
    if not any(isinstance(layer, nn.Dropout) and layer.p for layer in model.modules()):
        return None
    on_gpu = next(model.parameters()).is_cuda

    def seed(index: int, member: int, step: int) -> None:
        worker = (first_worker + index) * run.gpus_per_worker + member
        number = stream_seed(run.seed, "dropout", worker=worker, epoch=step)
        # Not torch.manual_seed, which takes milliseconds: it seeds all kinds of devices that the machine might have.
        (torch.cuda if on_gpu else torch.default_generator).manual_seed(number)

    return seed


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
