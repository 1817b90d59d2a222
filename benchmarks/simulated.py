"""Simulated workers: K workers in one process, on one CPU thread or a GPU; milliseconds of a local step of all of them.

`plain loop` is what the original code of Local SGD does for the clients of a GPU: a model and a torch optimizer for
each, one after the other; the optimizer is fused, as ours is. `serial` and `stacked` are the engines, `auto` the one
that a run gets unless it names another: the limits of `resync.workers.engine.stacked.LIMITS` follow from this table.
`LocalTensor` is torch's own simulation of processes in one, for debugging; it is measured with few workers of the
smallest net. No averages are taken, and no data are read.
"""

import time
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.harness import Benchmark, Case, Goal, Measure, Unavailable
from resync.base.settings.options import options_of
from resync.runs.train.objective import Classification
from resync.tasks import models
from resync.tasks.models.options.base import ModelOptions
from resync.workers import optim
from resync.workers.engine.choose import engine_of
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.engine import EngineParts, Stacking
from resync.workers.engine.members import Members
from resync.workers.engine.settings import EngineSettings
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers

CLASSES = 10
STEPS = 3
"""Measured steps of a case in a round, after one that is not measured."""
LR, MOMENTUM, DECAY = 0.01, 0.9, 5e-4
DIGITS, MNIST_14, MNIST, CIFAR_16, CIFAR = (1, 8, 8), (1, 14, 14), (1, 28, 28), (3, 16, 16), (3, 32, 32)
VIT = {"name": "vit", "patch": 4, "dim": 48, "depth": 2, "heads": 3, "mlp_dim": 96}


def resnet(depth: int, width: int, norm: str = "group") -> dict[str, Any]:
    """Options of a ResNet for CIFAR."""
    return {"name": "cifar_resnet", "depth": depth, "width": width, "norm": norm}


SETTINGS: list[tuple[str, dict[str, Any], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ("MLP 64", {"name": "mlp", "hidden": (64,)}, DIGITS, (4, 8, 32, 256), (8, 32)),
    ("MLP 128", {"name": "mlp", "hidden": (128,)}, MNIST, (8,), (8, 32, 128)),
    ("MLP 512-512", {"name": "mlp", "hidden": (512, 512)}, MNIST, (4,), (8, 32)),
    ("CNN 8-16", {"name": "cnn"}, DIGITS, (4, 8, 32), (8, 32)),
    ("CNN 8-16", {"name": "cnn"}, MNIST_14, (8,), (16, 32)),
    ("CNN 16-32", {"name": "cnn", "widths": (16, 32)}, CIFAR_16, (8,), (16, 32)),
    ("ResNet-8 w8 GN", resnet(8, 8), CIFAR_16, (4, 8, 32), (16,)),
    ("ResNet-8 w8 GN", resnet(8, 8), CIFAR_16, (8,), (32, 128)),
    ("ResNet-8 w8 BN", resnet(8, 8, "batch"), CIFAR_16, (8,), (16,)),
    ("ResNet-8 w16 GN", resnet(8, 16), CIFAR_16, (8,), (8, 32)),
    ("ResNet-20 w16 BN", resnet(20, 16, "batch"), CIFAR_16, (8,), (16,)),
    ("ResNet-20 w16 BN", resnet(20, 16, "batch"), CIFAR, (4,), (16,)),
    ("ViT d48 L2", VIT, CIFAR_16, (4, 8, 32), (16,)),
    ("ViT d48 L2", VIT, CIFAR_16, (8,), (8, 32, 128)),
    ("ViT d64 L4", VIT | {"dim": 64, "depth": 4, "heads": 4, "mlp_dim": 128}, CIFAR, (4,), (8, 32)),
]
"""Models, images, numbers of workers, and samples of a worker."""
LARGEST_OF_LOCAL_TENSOR = 8
"""Workers up to which a step of LocalTensor, which takes dozens of times as long as ours, is measured."""
SMALL = "MLP 64", "CNN 8-16", "CNN 16-32", "ResNet-8 w8 GN", "ResNet-8 w8 BN", "ViT d48 L2"
"""Nets under 20,000 parameters, and those for images of 16 x 16 pixels, which are to be twice as fast."""
GPU_SETTINGS: list[tuple[str, dict[str, Any], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ("ResNet-20 w16 BN", resnet(20, 16, "batch"), CIFAR, (32,), (128,)),
    ("ResNet-56 w16 GN", resnet(56, 16), CIFAR, (32,), (128,)),
]


class Simulation:
    """K workers of a model in the forms that are compared, all of them with the same samples."""

    def __init__(self, options: dict[str, Any], shape: tuple[int, ...], workers: int, batch: int, device: str) -> None:
        given = {name: value for name, value in options.items() if name != "name"}
        self.options = options_of("models", options["name"])(**given)
        assert isinstance(self.options, ModelOptions)
        self.shape, self.workers, self.batch, self.device = shape, workers, batch, device
        self.inputs = torch.randn(workers, batch, *shape, device=device)
        self.targets = torch.randint(CLASSES, (workers, batch), device=device)

    def plain(self) -> Callable[[], object]:
        """A step of the plain loop: a model and an optimizer a worker."""
        nets = [self.model() for _ in range(self.workers)]
        optimizers = [
            torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, nesterov=True, weight_decay=DECAY, fused=True)
            for net in nets
        ]

        def step() -> None:
            for net, optimizer, inputs, targets in zip(nets, optimizers, self.inputs, self.targets, strict=True):
                optimizer.zero_grad()
                F.cross_entropy(net(inputs), targets).backward()
                optimizer.step()

        return step

    def engine(self, name: Literal["serial", "stacked", "auto"]) -> Callable[[], object]:
        """A step of an engine."""
        workers = Workers(self.model(), self.workers)
        sgd = options_of("optim", "sgd")(momentum=MOMENTUM, nesterov=True, weight_decay=DECAY)
        optimizer, objective = optim.build(sgd, workers), Classification()
        transport = Transport(Members(self.workers), Clocks(torch.device(self.device)))
        stacking = Stacking(self.options.form, objective.training_losses, torch.zeros(1, *self.shape), self.batch)
        parts = EngineParts(transport, workers, optimizer, objective.training_loss, stacking=stacking)
        engine = engine_of(EngineSettings(name=name), parts)

        def step() -> None:
            engine.gradients(self.inputs, self.targets)
            engine.step(LR)

        return step

    def local_tensor(self) -> Callable[[], object]:
        """A step of torch's LocalTensor, which calls each operation for every worker."""
        try:
            from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
        except ImportError:
            raise Unavailable(f"torch {torch.__version__} has no LocalTensor") from None
        mode = LocalTensorMode(self.workers)
        with mode:
            net = self.model()
            inputs, targets = (LocalTensor(dict(enumerate(each))) for each in (self.inputs, self.targets))
            options = {"momentum": MOMENTUM, "nesterov": True, "weight_decay": DECAY}
            optimizer = torch.optim.SGD(net.parameters(), lr=LR, **options)

        def step() -> None:
            with mode:
                optimizer.zero_grad()
                F.cross_entropy(net(inputs), targets).backward()
                optimizer.step()

        return step

    def model(self) -> nn.Module:
        """A model with initial weights."""
        return models.build(self.options, self.shape, CLASSES, seed=0).to(self.device)


def benchmark(smallest: bool = False) -> Benchmark:
    """A group for each model, number of workers and size of a batch."""
    torch.set_num_threads(1)
    settings = [("cpu", each) for each in SETTINGS[: 1 if smallest else None]]
    settings += [("cuda", each) for each in GPU_SETTINGS if torch.cuda.is_available()]
    cases, goals = [], []
    for device, (name, options, shape, numbers, batches) in settings:
        for workers, batch in product(numbers, batches):
            size = "x".join(map(str, shape[1:]))
            group = f"{name} {size}, K {workers}, b {batch}, {device}"
            cases += of_group(group, Simulation(options, shape, workers, batch, device))
            goals.append(Goal("auto", at=1.0, beside=("plain loop",), group=group))
            if device == "cpu" and name in SMALL:
                goals.append(Goal("auto", at=0.5, beside=("plain loop",), group=group))
            if device == "cuda" and name.startswith("ResNet-20"):
                goals.append(Goal("auto", at=1 / 20, beside=("plain loop",), group=group))
    return Benchmark(
        title="Simulated workers: milliseconds of a step of all",
        minutes=2,
        measures={"processor_ms": Measure("ms", "lower"), "wall_ms": Measure("ms", "lower")},
        cases=cases,
        base="plain loop",
        code=["workers/engine", "workers/optim"],
        goals=goals,
        notes=["on a GPU, processor_ms is the time on its stream, with the host's"],
    )


def of_group(group: str, simulation: Simulation) -> list[Case]:
    """The cases of a group, which make their models when they are first measured."""
    steps = {"plain loop": simulation.plain} | {
        name: partial(simulation.engine, name) for name in ("serial", "stacked", "auto")
    }
    if group.startswith("MLP 64 ") and simulation.workers <= LARGEST_OF_LOCAL_TENSOR:
        steps["LocalTensor"] = simulation.local_tensor
    return [Case(name, partial(timed, cache(make), simulation.device), group) for name, make in steps.items()]


def timed(make: Callable[[], Callable[[], object]], device: str) -> dict[str, list[float]]:
    """Milliseconds of some steps after one that does not count."""
    step = make()
    step()
    found: dict[str, list[float]] = {"processor_ms": [], "wall_ms": []}
    for _ in range(STEPS):
        wall, processor = time.perf_counter(), time.process_time()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        spent = time.perf_counter() - wall
        found["wall_ms"].append(1000 * spent)
        found["processor_ms"].append(1000 * (time.process_time() - processor if device == "cpu" else spent))
    return found
