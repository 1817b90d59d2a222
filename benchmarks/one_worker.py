"""One worker: the suite's loop beside torchvision's reference loop with the same model, batch and number format.

ResNet-50 and ViT-B/16 on synthetic images and on .beton files, the base Transformer on sentence pairs. Every case runs
in a process of its own: on the CPU with small batches, in processor time on one thread; on a GPU in bf16 and with
channels_last. The floating-point operations of a step (torch's flop counter) give the share of what a large matrix
product reaches on the same machine.
"""

import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from benchmarks._photos import NAME, Photos
from benchmarks.harness import Benchmark, Case, Goal, Measure, Processes
from resync.runs.run import Run
from resync.runs.train.build import build
from resync.runs.train.loop import batches, train_step
from resync.tasks import data
from resync.tasks.data import streamed
from resync.tasks.data.memory import InMemory
from resync.tasks.data.pixels import Pixels
from resync.tasks.data_sets.declaration import data_set

CUDA = torch.cuda.is_available()
STEPS, WARM_UP = (30, 10) if CUDA else (3, 1)
OURS, THEIRS = "resync", "reference loop"
FROM_DISK = "resync, .beton files"
SYNTHETIC = "synthetic"
MATMUL = 8192 if CUDA else 1024


@dataclass(frozen=True)
class Task:
    """A model, its batch here, and what is counted: images or target tokens."""

    model: dict[str, Any]
    batch_size: int
    data: str = "imagenet1k"
    optimizer: str = "sgd"

    @property
    def is_translation(self) -> bool:
        """Whether batches are buckets of sentence pairs."""
        return self.data == "sentences"


TASKS = {
    "ResNet-50, images": Task({"name": "resnet", "depth": 50}, 256 if CUDA else 4),
    "ViT-B/16, images": Task({"name": "vit"}, 128 if CUDA else 2),
    "Transformer base, tokens": Task({"name": "transformer"}, 8192 if CUDA else 512, "sentences", "adamw"),
}


def benchmark(smallest: bool = False) -> Benchmark:
    """A group for each model; at the smallest size, of one step after another that is not measured."""
    photos, running = Photos(64) if smallest else Photos(), ExitStack()
    started: list[Processes] = []

    def warm_up() -> None:
        running.callback(photos.close)
        photos.make()
        started.append(running.enter_context(Processes()))

    def case(form: str, task: str) -> dict[str, Any]:
        if form == FROM_DISK:
            photos.require("beton")
        given = {"form": form, "name": task, "folder": str(photos.folder), "steps": 1 if smallest else STEPS}
        [report] = started[0].run("benchmarks.one_worker:measured", [given])
        return report.value

    forms = {task: [OURS, THEIRS, *([] if TASKS[task].is_translation else [FROM_DISK])] for task in TASKS}
    return Benchmark(
        title="One worker",
        minutes=3.5,
        measures={"per_second": Measure("1/s", "higher"), "share_of_matmul": Measure("1", "higher")},
        cases=[Case(form, partial(case, form, task), task) for task in TASKS for form in forms[task]],
        base=THEIRS,
        code=["tasks/data", "workers/engine", "tasks/models", "workers/optim", "runs/train"],
        goals=[Goal(OURS, at=1.0, beside=(THEIRS,)), Goal(FROM_DISK, at=0.95, beside=(THEIRS,))],
        notes=[
            f"batches of {', '.join(f'{task.batch_size} ({name})' for name, task in TASKS.items())}",
            "processor time on one thread" if not CUDA else "bf16, channels_last",
            ".beton files are decoded by one process beside, whose processor time is not counted: it overlaps",
        ],
        warm_up=warm_up,
        close=running.close,
    )


def measured(form: str, name: str, folder: str, steps: int) -> dict[str, Any]:
    """Samples per second of every step, and their share of the matrix product's ceiling."""
    torch.set_num_threads(1)
    task = TASKS[name]
    with tempfile.TemporaryDirectory() as out:
        taken = theirs(task, Path(out)) if form == THEIRS else ours(task, Path(out), form == FROM_DISK, folder)
        operations, ceiling = 0, matmul_rate()
        rates, used = [], []
        for number in range(WARM_UP + steps):
            started = _clock()
            if number == 0:
                with FlopCounterMode(display=False) as counter:
                    next(taken)
                operations = counter.get_total_flops()
                continue
            samples = next(taken)
            seconds = _clock() - started
            if number >= WARM_UP:
                rates.append(samples / seconds)
                used.append(operations / seconds / ceiling)
        taken.close()
    # The pairs of a bucket differ in length, and the operations are those of the first one.
    return {"per_second": rates} | ({} if task.is_translation else {"share_of_matmul": used})


def ours(task: Task, out: Path, from_disk: bool, folder: str) -> Generator[int, None, None]:
    """The suite's loop; yields the samples of each step."""
    run = _run(task, out)
    if not task.is_translation:
        made = _from_disk(Path(folder)) if from_disk else _synthetic()
        data.build = lambda *_: made
    session = build(run, out, _device(), 0, 1)
    try:
        while True:
            for inputs, targets in batches(session):
                train_step(session, inputs, targets)
                yield _samples(task, targets[0][0].ids if task.is_translation else targets[0])
    finally:
        session.data.close()


def theirs(task: Task, out: Path) -> Generator[int, None, None]:
    """torchvision's references/classification/train.py, written out; for text the same loop with its loss.

    With torch's fused optimizers, as the suite's are.
    """
    run = _run(task, out)
    session_data = data.build("sentences", run.data.options).to(_device()) if task.is_translation else _synthetic()
    model = _model(run).to(_device(), **({"memory_format": torch.channels_last} if _images_on_gpu(task) else {}))
    if task.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(
            model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, fused=True
        )
    else:
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    model.train()
    for inputs, targets in _reference_batches(task, run, session_data):
        with torch.autocast(_device().type, torch.bfloat16, enabled=CUDA):
            output = model(inputs)
            labels = targets.flatten() if task.is_translation else targets
            loss = F.cross_entropy(output.flatten(0, -2), labels, ignore_index=0 if task.is_translation else -100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not task.is_translation:
            _accuracies(output, targets)
        loss.item()
        yield _samples(task, targets)


def _accuracies(output: Tensor, targets: Tensor) -> list[float]:
    """As the reference computes them in every step."""
    with torch.inference_mode():
        _, found = output.topk(5, 1)
        hits = found.t() == targets[None]
        return [float(hits[:k].flatten().sum(dtype=torch.float32) * (100 / len(targets))) for k in (1, 5)]


def _reference_batches(task: Task, run: Run, source: Any) -> Iterable[tuple[Any, Tensor]]:
    """Batches on the device: the same images in every step, or one bucket after the other."""
    if not task.is_translation:
        images = source.pixels.normalise(source.train_inputs[: task.batch_size]).to(_device())
        labels = source.train_targets[: task.batch_size].to(_device())
        while True:
            yield images, labels
    sampler = build(run, Path(tempfile.mkdtemp()), _device(), 0, 1).sampler
    for inputs, targets in source.batches(sampler, 0, 0, slice(0, 1)):
        yield inputs[0][0], targets[0][0].ids


def _run(task: Task, out: Path) -> Run:
    translation = task.is_translation
    settings: dict[str, Any] = {
        "paper": "benchmark", "experiment": "one_worker", "series": "one", "scale": "paper", "seed": 0,
        "data": {"name": "sentences", "max_tokens": task.batch_size} if translation else {"name": task.data},
        "model": task.model,
        "workers": 1,
        "batch_size": 1 if translation else task.batch_size,
        "epochs": 1,
        "steps_per_epoch": 8 if translation else WARM_UP + STEPS,
        "sampling": "with_replacement",
        "optimizer": {"name": "adamw"} if translation else {"name": "sgd", "momentum": 0.9, "weight_decay": 1e-4},
        "schedule": {"name": "constant", "lr": 1e-4 if translation else 0.1},
        "evaluation": {"bn_batches": 1} if task.model["name"] == "resnet" else {},
        "sync": {"name": "allreduce"},
        "precision": "bf16" if CUDA else "fp32",
        "memory_format": "channels_last" if _images_on_gpu(task) else None,
        "log": {"wandb": "disabled"},
    }  # fmt: skip
    return Run.model_validate(settings)


def _model(run: Run) -> nn.Module:
    from resync.tasks import models

    return models.build(run.model, run.facts["input_shape"], run.facts["num_classes"], run.seed)


def _synthetic() -> InMemory:
    """Random images of ImageNet's shape."""
    of = data_set("imagenet1k")
    generator = torch.Generator().manual_seed(0)
    number = max(task.batch_size for task in TASKS.values() if not task.is_translation)
    images = torch.randint(256, (number, 3, 224, 224), dtype=torch.uint8, generator=generator)
    labels = torch.randint(1000, (number,), generator=generator)
    pixels = Pixels.of(of.reader.mean, of.reader.std, of.facts["input_shape"], None)  # type: ignore[union-attr]
    return InMemory(images, labels, images[:1], labels[:1], SYNTHETIC, "0", pixels).to(_device())


def _from_disk(folder: Path) -> streamed.Streamed:
    decoders = None if CUDA else 1
    os.environ["RESYNC_DATA"] = str(folder)
    return streamed.read(data_set(NAME, folder / "package"), "standard", "beton", decoders)


def matmul_rate(repeats: int = 5) -> float:
    """The most floating-point operations a second of a large matrix product, in the number format of the models."""
    half = torch.bfloat16 if CUDA else torch.float32
    a, b = (torch.randn(MATMUL, MATMUL, dtype=half, device=_device()) for _ in range(2))
    return 2 * MATMUL**3 / min(_seconds(lambda: a @ b) for _ in range(repeats))


def _seconds(act: Callable[[], object]) -> float:
    started = _clock()
    act()
    return _clock() - started


def _clock() -> float:
    """Seconds, after what the device has to do is done."""
    if CUDA:
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def _samples(task: Task, targets: Tensor) -> int:
    return int(np.count_nonzero(targets.cpu())) if task.is_translation else targets.numel()


def _images_on_gpu(task: Task) -> bool:
    return CUDA and not task.is_translation


def _device() -> torch.device:
    return torch.device("cuda" if CUDA else "cpu")
