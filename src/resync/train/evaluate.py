"""Evaluation of the consensus model."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from resync.train.session import Session
from resync.train.sharpness import sharpness


@contextmanager
def consensus(session: Session, of_checkpoints: bool = True) -> Iterator[nn.Module]:
    """The averaged model in evaluation mode, with re-estimated BatchNorm statistics; everything is restored afterwards.

    It is the average of the workers; if the run averages checkpoints, also with the models evaluated before, unless
    `of_checkpoints` is False. The workers' statistics belong to their own parameters and would cost the average several
    points of accuracy (Gu et al. 2023). The new ones are the mean over `evaluation.bn_batches` batches of training
    samples, which are divided among the processes but do not depend on their number.
    """
    sync = session.sync
    with sync.consensus() as model:
        if of_checkpoints:
            session.checkpoint_average.average_(sync.rows[0], sync.steps)
        layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
        saved = [(layer.momentum, {name: buffer.clone() for name, buffer in layer.named_buffers()}) for layer in layers]
        try:
            if layers:
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
    """Validation metrics of `model` over the samples of all processes, and its sharpness if it is measured."""
    run, transport = session.run, session.transport
    sums = session.objective.sums(model, session.data, transport.rank, transport.world_size)
    metrics = session.objective.metrics(transport.sum_(sums))
    if batches := run.evaluation.sharpness_batches:
        with torch.enable_grad():
            metrics["sharpness"] = sharpness(
                model, session.objective, session.data, transport, run.seed, session.sync.steps, batches,
                run.forward_batch_size,
            )  # fmt: skip
    return metrics


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
