"""Evaluation of the consensus model."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from resync.data import Dataset
from resync.engine.transport import Transport
from resync.sync.algorithm import Algorithm
from resync.train.last_models import LastModels
from resync.train.objective import Objective


@contextmanager
def consensus_model(
    sync: Algorithm,
    last: LastModels,
    objective: Objective,
    data: Dataset,
    transport: Transport,
    seed: int,
    bn_batches: int,
    local_batch: int,
) -> Iterator[nn.Module]:
    """The averaged model in evaluation mode, its BatchNorm statistics estimated for it; undone afterwards.

    It is the average of the workers, and then that with the `last` evaluated models, if there are to be any.
    The statistics of the workers belong to their own parameters and would cost the average several points
    (Gu et al. 2023). They are the mean over `bn_batches` batches of `local_batch` training samples, shared out over
    the processes; which batches does not depend on their number.
    """
    with sync.consensus() as model:
        last.average_(sync.rows[0], sync.steps)
        layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
        saved = [(layer.momentum, {name: buffer.clone() for name, buffer in layer.named_buffers()}) for layer in layers]
        try:
            if layers:
                _estimate(model, layers, objective, data, transport, seed, sync.steps, bn_batches, local_batch)
            model.eval()
            yield model
        finally:
            model.train()
            for layer, (momentum, buffers) in zip(layers, saved, strict=True):
                layer.momentum = momentum
                for name, buffer in layer.named_buffers():
                    buffer.copy_(buffers[name])


@torch.no_grad()
def _estimate(
    model: nn.Module,
    layers: list[_BatchNorm],
    objective: Objective,
    data: Dataset,
    transport: Transport,
    seed: int,
    step: int,
    bn_batches: int,
    local_batch: int,
) -> None:
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # torch's cumulative mean: batch i enters with 1 / (1 + i)
    mine = range(transport.rank, bn_batches, transport.world_size)
    model.train()
    for index in mine:
        inputs, _ = data.statistics_batch(seed, step, index, local_batch)
        objective.logits(model, inputs)
    for layer in layers:
        for buffer in (layer.running_mean, layer.running_var):
            assert buffer is not None
            transport.sum_(buffer.mul_(len(mine))).div_(bn_batches)


@torch.no_grad()
def score(model: nn.Module, objective: Objective, data: Dataset, transport: Transport) -> dict[str, float]:
    """Validation metrics of `model`, every sample counted once over all processes."""
    return objective.metrics(transport.sum_(objective.sums(model, data, transport.rank, transport.world_size)))
