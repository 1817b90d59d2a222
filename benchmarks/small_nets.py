"""Small nets with one worker: microseconds of processor time of a step of the suite, beside the same loop written out.

Both draw the same samples from memory, with the same loss, fused optimizer, single thread and setting of the allocator.
The suite also adds up the accuracies of the samples, as metrics.csv has them, and averages over its workers. At this
size a step is what surrounds the arithmetic; one large net stands for the others.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.harness import Benchmark, Case, Goal, Measure
from resync.base.processes.memory import keep_freed_memory
from resync.runs.run import Run
from resync.runs.train.build import build
from resync.runs.train.loop import batches, train_step
from resync.runs.train.session import Session
from resync.tasks import models

OURS, THEIRS = "resync", "loop written out"
SECONDS, WARM_UP = 0.5, 20
"""Processor time of a measurement, and the steps before it."""
EPOCH = 80
"""Steps of an epoch: 1,280 of the 1,437 training samples in batches of 16."""
RATE, MOMENTUM = 0.01, 0.9
NETS: dict[str, tuple[dict[str, Any], int]] = {
    "MLP 64": ({"name": "mlp", "hidden": [64]}, 16),
    "CNN 8-16": ({"name": "cnn", "widths": [8, 16]}, 16),
    "ResNet-8 w8": ({"name": "cifar_resnet", "depth": 8, "width": 8, "norm": "group"}, 16),
    "MLP 2048-2048": ({"name": "mlp", "hidden": [2048, 2048]}, 16),
}
"""Models, and samples of a batch."""


def benchmark(smallest: bool = False) -> Benchmark:
    """A group for each net; at the smallest size, of the first one."""
    nets = list(NETS)[:1] if smallest else list(NETS)
    forms = {OURS: ours, THEIRS: theirs}
    return Benchmark(
        title="Small nets, one worker",
        minutes=1.0,
        measures={"step": Measure("us", "lower")},
        cases=[Case(form, partial(measured, forms[form], net), net) for net in nets for form in forms],
        base=THEIRS,
        code=["workers/engine", "workers/optim", "runs/train"],
        goals=[Goal(OURS, at=1.3, beside=(THEIRS,))],
        notes=["processor time on one thread", "digits of 8 x 8 pixels, batches of 16, fused SGD with momentum"],
        warm_up=_prepare,
    )


def _prepare() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()


def measured(form: Callable[[str], Iterator[object]], net: str) -> dict[str, float]:
    """The mean over the steps of a measurement."""
    steps = form(net)
    for _ in range(WARM_UP):
        next(steps)
    began, number = time.process_time(), 0
    while (spent := time.process_time() - began) < SECONDS:
        for _ in range(10):
            next(steps)
        number += 10
    return {"step": 1e6 * spent / number}


def ours(net: str) -> Iterator[None]:
    """The suite's loop, without evaluations."""
    session = _session(net)
    while True:
        for inputs, targets in batches(session):
            train_step(session, inputs, targets)
            yield
        session.sync.steps = 0


def theirs(net: str) -> Iterator[None]:
    """The loop that a user would write."""
    session = _session(net)
    images, labels = session.data.train_inputs, session.data.train_targets  # type: ignore[attr-defined]
    run, batch = session.run, NETS[net][1]
    model = models.build(run.model, run.facts["input_shape"], run.facts["num_classes"], seed=0)
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, fused=True)
    total = torch.zeros(())
    while True:
        for index in torch.randperm(len(labels)).split(batch)[:EPOCH]:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[index]), labels[index])
            loss.backward()
            optimizer.step()
            total += loss.detach()
            yield


@cache
def _session(net: str) -> Session:
    options, batch = NETS[net]
    run = Run.model_validate({
        "paper": "benchmark", "experiment": "small_nets", "series": "one", "scale": "smoke", "seed": 0,
        "data": {"name": "digits"}, "model": options, "workers": 1, "batch_size": batch, "epochs": 1000,
        "steps_per_epoch": EPOCH, "sampling": "without_replacement",
        "optimizer": {"name": "sgd", "momentum": MOMENTUM}, "schedule": {"name": "constant", "lr": RATE},
        "sync": {"name": "allreduce"}, "log": {"wandb": "disabled"},
    })  # fmt: skip
    return build(run, Path(tempfile.mkdtemp()), torch.device("cpu"), 0, 1)
