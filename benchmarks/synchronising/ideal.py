"""The same communication written out with torch alone: what no library can undercut by much, and torch's own means."""

import math

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

from benchmarks.synchronising.loop import LR, MOMENTUM, H, Setting, Step, loss_of


def flattened(model: nn.Module) -> Tensor:
    """The parameters as one vector of which the model's are views."""
    parameters = list(model.parameters())
    flat = torch.cat([parameter.detach().flatten() for parameter in parameters])
    for parameter, part in zip(parameters, flat.split([each.numel() for each in parameters]), strict=True):
        parameter.data = part.view_as(parameter)
    return flat


def nothing(setting: Setting) -> Step:
    """No communication."""
    optimizer = setting.optimizer()

    def step(batch: Tensor, labels: Tensor) -> None:
        loss_of(setting.model, batch, labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def local_sgd(setting: Setting) -> Step:
    """One all-reduce of the flat parameters after every H steps."""
    flat, alone, done = flattened(setting.model), nothing(setting), [0]

    def step(batch: Tensor, labels: Tensor) -> None:
        alone(batch, labels)
        done[0] += 1
        if done[0] % H == 0:
            dist.all_reduce(flat)
            flat.div_(setting.size)

    return step


def periodic_averager(setting: Setting) -> Step:
    """torch's PeriodicModelAverager."""
    optimizer, averager = setting.optimizer(), PeriodicModelAverager(period=H)

    def step(batch: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        loss_of(setting.model, batch, labels).backward()
        optimizer.step()
        averager.average_parameters(setting.model.parameters())  # it leaves out parameters without a gradient

    return step


def gossip(setting: Setting) -> Step:
    """One flat exchange with a peer at 1, 2, 4, ... hops, and the mean of both."""
    flat, alone, done = flattened(setting.model), nothing(setting), [0]
    inbox, hops = torch.empty_like(flat), max(1, math.ceil(math.log2(setting.size)))

    def step(batch: Tensor, labels: Tensor) -> None:
        alone(batch, labels)
        hop = 2 ** (done[0] % hops)
        to, sender = (setting.rank + hop) % setting.size, (setting.rank - hop) % setting.size
        requests = [dist.irecv(inbox, sender), dist.isend(flat, to)]
        for request in requests:
            request.wait()
        flat.add_(inbox).mul_(0.5)
        done[0] += 1

    return step


def all_reduce(setting: Setting) -> Step:
    """One all-reduce of the flat gradient after the backward pass."""
    model = setting.model
    flat = flattened(model)
    parameters = list(model.parameters())
    gradient = torch.zeros_like(flat)
    for parameter, part in zip(parameters, gradient.split([each.numel() for each in parameters]), strict=True):
        parameter.grad = part.view_as(parameter)
    whole = nn.Parameter(flat)
    whole.grad = gradient
    optimizer = torch.optim.SGD([whole], lr=LR, momentum=MOMENTUM, fused=True)

    def step(batch: Tensor, labels: Tensor) -> None:
        gradient.zero_()
        loss_of(model, batch, labels).backward()
        dist.all_reduce(gradient)
        gradient.div_(setting.size)
        optimizer.step()

    return step


def ddp(setting: Setting) -> Step:
    """torch's DistributedDataParallel; BatchNorm's statistics stay with their process, as in all other methods."""
    module = DistributedDataParallel(setting.model, broadcast_buffers=False, gradient_as_bucket_view=True)
    optimizer = setting.optimizer()

    def step(batch: Tensor, labels: Tensor) -> None:
        loss_of(module, batch, labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
