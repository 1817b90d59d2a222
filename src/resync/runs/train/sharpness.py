"""Sharpness of the training loss at the consensus model."""

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from resync.base.streams import stream
from resync.runs.train.objective import Objective
from resync.tasks.data import Dataset
from resync.workers.engine.transport import Transport


def sharpness(
    model: nn.Module, objective: Objective, data: Dataset, transport: Transport, seed: int, step: int, batches: int,
    batch_size: int,
) -> float:  # fmt: skip
    """The trace of the Hessian of the training loss at `model`, which is in evaluation mode, in nats.

    Hutchinson's estimator: the mean of z^T H z over `batches` batches, each with its own H and its own z of independent
    random signs. Label noise drives training towards a small trace (Gu et al. 2023, section 3). Batches are divided
    among the processes; batches and signs do not depend on their number.
    """
    total = torch.zeros((), dtype=torch.float64, device=next(model.parameters()).device)
    for index in range(transport.rank, batches, transport.world_size):
        inputs, targets = data.statistics_batch(seed, step, index, batch_size)
        # Fused attention has no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            total += _curvature(model, objective.loss(model, inputs, targets), _signs(model, seed, step, index))
    return transport.sum_(total).item() / batches


def _curvature(model: nn.Module, loss: Tensor, direction: list[Tensor]) -> Tensor:
    """z^T H z for the Hessian of `loss` with respect to the model's parameters and z = `direction`."""
    parameters = list(model.parameters())
    gradient = torch.autograd.grad(loss, parameters, create_graph=True)
    slope = torch.stack([(g * z).sum() for g, z in zip(gradient, direction, strict=True)]).sum()
    product = torch.autograd.grad(slope, parameters)
    return torch.stack([(h * z).sum() for h, z in zip(product, direction, strict=True)]).sum()


def _signs(model: nn.Module, seed: int, step: int, index: int) -> list[Tensor]:
    draws = stream(seed, "sharpness", worker=index, epoch=step)
    return [
        torch.from_numpy(2 * draws.integers(2, size=tuple(parameter.shape), dtype="int8") - 1).to(parameter)
        for parameter in model.parameters()
    ]
