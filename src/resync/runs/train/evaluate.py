"""Evaluation of the consensus model and of the workers' own: when, and of what."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import nan

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from resync.runs.metrics.registry import METRICS, STATISTICS, swa_metric, worker_metric
from resync.runs.train.language_model import estimated_loss
from resync.runs.train.objective import Sums
from resync.runs.train.session import Session
from resync.runs.train.sharpness import sharpness


@contextmanager
def consensus(session: Session, parameters: Tensor | None = None) -> Iterator[nn.Module]:
    """The averaged model in evaluation mode, with re-estimated BatchNorm statistics; everything is restored afterwards.

    Given `parameters` [P], a model with these instead of the average.

    A single worker may keep its own statistics (`evaluation.bn_batches: 0`).

    The workers' statistics belong to their own parameters and would cost the average several points of accuracy (Gu et
    al. 2023). The new ones are the mean over `evaluation.bn_batches` batches of training samples, which are divided
    among the processes but do not depend on their number.
    """
    with session.sync.consensus() as model:
        if parameters is not None:
            session.workers.rows.detach()[0] = parameters
        layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
        saved = [(layer.momentum, {name: buffer.clone() for name, buffer in layer.named_buffers()}) for layer in layers]
        try:
            if layers and session.run.evaluation.bn_batches:
                _estimate_statistics(session, model, layers)
            model.eval()
            yield model
        finally:
            model.train()
            for layer, (momentum, buffers) in zip(layers, saved, strict=True):
                layer.momentum = momentum
                for name, buffer in layer.named_buffers():
                    buffer.copy_(buffers[name])


@torch.no_grad()
def score(session: Session, model: nn.Module) -> dict[str, float]:
    """Validation metrics of `model` over the samples of all processes, and what else is measured of it."""
    run, transport, objective = session.run, session.transport, session.objective
    metrics = objective.metrics(_summed(session, model, test=True))
    if batches := run.evaluation.sharpness_batches:
        with torch.enable_grad():
            metrics["sharpness"] = sharpness(
                model, objective, session.data, transport, run.seed, session.sync.steps, batches,
                run.forward_batch_size,
            )  # fmt: skip
    if batches := run.evaluation.random_batches:
        metrics["val_loss_estimate"] = estimated_loss(
            model, objective, session.data, transport, run.seed, session.sync.steps, batches, run.local_batch_size
        )
    return metrics


def _summed(session: Session, model: nn.Module, test: bool) -> Sums:
    """The sums of a model over the samples of all processes, each [s], after one exchange; with those of the test."""
    place = session.data, session.transport.rank, session.transport.world_size
    sums = dict(session.objective.sums([model], *place))
    if test:
        sums |= session.objective.test_sums(model, *place)
    device = sums["samples"].device
    totals = session.transport.sum_(torch.cat([part.to(device) for part in sums.values()]))
    return dict(zip(sums, totals.split([len(part) for part in sums.values()]), strict=True))


def distance(session: Session) -> dict[str, float]:
    """The distance of several workers from their average: Xi of Kong et al. 2021 (Consensus control)."""
    if session.run.workers == 1:
        return {}
    squares = session.transport.gather(session.sync.squared_distances())
    return {"consensus_distance": squares.mean().sqrt().item()}


@torch.no_grad()
def score_workers(session: Session) -> dict[str, float]:
    """Mean, minimum and maximum over the workers of the validation metrics of their own models, if they are asked for.

    Every process scores its own workers on all validation samples, each with its own running BatchNorm statistics, as
    the original code of Assran et al. 2019 does.
    """
    if session.run.evaluation.also != "workers":
        return {}
    with session.sync.own_models() as models:
        for model in models:
            model.eval()
        sums = session.objective.sums(models, session.data, rank=0, world_size=1)
        for model in models:
            model.train()
    of_workers = session.transport.gather(torch.stack(list(sums.values()), 1))
    scores = [session.objective.metrics(dict(zip(sums, row, strict=True))) for row in of_workers]
    metrics: dict[str, float] = {}
    for name in scores[0]:
        values = torch.tensor([score[name] for score in scores], dtype=torch.float64)
        metrics |= {worker_metric(name, statistic): getattr(values, statistic)().item() for statistic in STATISTICS}
    return metrics


@torch.no_grad()
def score_swa(session: Session, metrics: Iterable[str]) -> dict[str, float]:
    """Those of the metrics that exist of the mean of the models evaluated so far, this one included, if asked for.

    They are NaN before the first of these models, since a table has the same columns in all rows.
    """
    swa = session.swa
    names = [name for name in metrics if swa_metric(name) in METRICS]
    if swa is None:
        return {}
    if session.sync.steps < swa.first_step:
        return {swa_metric(name): nan for name in names}
    with session.sync.consensus():
        mean = swa.add(session.workers.rows[0])
    with consensus(session, mean) as model:
        values = session.objective.metrics(_summed(session, model, test=False))
    return {swa_metric(name): values[name] for name in names}


@torch.no_grad()
def _estimate_statistics(session: Session, model: nn.Module, layers: list[_BatchNorm]) -> None:
    run, transport = session.run, session.transport
    number = run.evaluation.bn_batches
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # torch's cumulative mean: batch i enters with 1 / (1 + i)
    mine = range(transport.rank, number, transport.world_size)
    model.train()
    for index in mine:
        inputs, _ = session.data.statistics_batch(run.seed, session.sync.steps, index, run.forward_batch_size)
        session.objective.logits(model, inputs)
    for layer in layers:
        for buffer in (layer.running_mean, layer.running_var):
            assert buffer is not None
            transport.sum_(buffer.mul_(len(mine))).div_(number)
