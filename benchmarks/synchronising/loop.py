"""The training that all methods share, and what is measured of it: models, batches, clocks and counters."""

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

H = 8
"""Local steps in a round of Local SGD and SlowMo."""
LR, MOMENTUM = 0.001, 0.9
WARM_UP = 2
"""Steps, or rounds of local steps, that are not measured."""


class Residual(nn.Module):
    """Two 3 x 3 convolutions with BatchNorm around a shortcut (He et al. 2016)."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        project = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.shortcut = nn.Identity() if channels == out else project

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, h, w] -> [batch, out, h / stride, w / stride]."""
        return F.relu(self.second(self.first(x)) + self.shortcut(x))


def mlp() -> tuple[nn.Module, tuple[int, ...]]:
    """5.0 million parameters, and its batch."""
    widths = [(1024, 1472), (1472, 1472), (1472, 896)]
    hidden = [layer for pair in widths for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(896, 10)), (64, 1024)


def resnet() -> tuple[nn.Module, tuple[int, ...]]:
    """ResNet-18 for images of 32 x 32, 11.2 million parameters, and its batch."""
    blocks = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    body = [Residual(*block) for block in [*blocks, (512, 512, 1)]]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)), (4, 3, 32, 32)


MODELS = {"MLP": mlp, "ResNet": resnet}


@dataclass(frozen=True)
class Setting:
    """What a method builds on: the model, its place among the processes, and the folder where they meet."""

    model: nn.Module
    rank: int
    size: int
    folder: str
    keep: list[Any] = field(default_factory=list)
    """What must live as long as the process."""

    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of a caller's loop."""
        return torch.optim.SGD(self.model.parameters(), lr=LR, momentum=MOMENTUM, fused=True)


Step = Callable[[Tensor, Tensor], object]
"""A whole step of one process on a batch."""


def measure(
    method: str, model: str, rank: int, size: int, folder: str, interface: str | None, steps: int, every: int = 1
) -> dict[str, Any]:
    """Train with `module:function` of this package, which takes a `Setting` and returns a `Step`.

    Measures `steps` steps after a warm-up of some `every` steps; `every` is the number of steps in a round.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if interface:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    store = dist.FileStore(f"{folder}/store", size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=240))
    net, shape = MODELS[model]()
    vector = 4 * sum(parameter.numel() for parameter in net.parameters())
    torch.manual_seed(1 + rank)
    batch, labels = torch.randn(shape), torch.randint(10, shape[:1])
    module, _, name = method.partition(":")
    step: Step = getattr(import_module(f"benchmarks.synchronising.{module}"), name)(Setting(net, rank, size, folder))
    for _ in range(max(WARM_UP, every)):
        step(batch, labels)
    dist.barrier()
    step(batch, labels)  # so that as much is on its way when the clock starts as when it stops
    sent, spent, started = _sent(interface), _processor_seconds(), time.perf_counter()
    ends = []
    for _ in range(steps):
        step(batch, labels)
        ends.append(time.perf_counter())
    took, spent, sent = ends[-1] - started, _processor_seconds() - spent, _sent(interface) - sent
    times = [end - begin for begin, end in zip([started, *ends], ends, strict=False)]
    dist.barrier()
    return {"step": took / steps, "steps": times, "processor": spent / steps, "sent": sent / steps, "vector": vector}


def loss_of(model: nn.Module, batch: Tensor, labels: Tensor) -> Tensor:
    """The loss that all methods minimise."""
    return F.cross_entropy(model(batch), labels)


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _sent(interface: str | None) -> int:
    """Bytes that the kernel has sent through an interface of this process's network namespace."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    return next((int(line.split()[9]) for line in lines if line.strip().startswith(f"{interface}:")), 0)
