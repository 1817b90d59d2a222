"""Language model: a step of this package's loop beside one of nanoGPT's, in nanoGPT's setting for a CPU.

nanoGPT's loop is written out here: batches stacked from slices of an array, AdamW over two groups of tensors, gradients
clipped by torch. The model is the same in both. Both in this process; seconds are processor time on one thread.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import chain, count
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.harness import Benchmark, Case, Goal, Measure
from resync.papers.paper.suite import load_suite
from resync.runs.run import Run
from resync.runs.run.run import Scale
from resync.runs.train.build import build
from resync.runs.train.loop import batches, train_step
from resync.tasks import models
from resync.tasks.data.sonnets import FILE

CONFIGS = Path(__file__).parents[1] / "paper_configs"
OURS, NANOGPT = "resync", "nanoGPT's loop"
STEPS = 20
SCALE: Scale = "mini"


def benchmark(smallest: bool = False) -> Benchmark:
    """The two loops, each continuing where it was."""
    folder = Path(gettempdir(), f"resync-nanogpt-{os.getpid()}")
    [run, *_] = load_suite(CONFIGS, papers=["outer_optimizers"]).runs("outer_optimizers", SCALE, "nanogpt_cpu")
    # The shipped text has the same cost per window as the one of the setting, and needs no preparation.
    run = Run.model_validate(
        run.model_dump() | {"data": {"name": "sonnets", "context": 64}, "log": {"wandb": "disabled"}}
    )
    return Benchmark(
        title="Steps of a language model (nanoGPT's setting for a CPU, 0.8 M parameters)",
        minutes=0.5,
        measures={"ms_per_step": Measure("ms", "lower")},
        cases=[
            Case(OURS, partial(seconds, 1 if smallest else STEPS, cache(partial(our_steps, run, folder)))),
            Case(NANOGPT, partial(seconds, 1 if smallest else STEPS, cache(partial(nanogpt_steps, run)))),
        ],
        base=NANOGPT,
        code=["tasks/data", "workers/engine", "tasks/models", "workers/optim", "runs/train"],
        goals=[Goal(OURS, at=1.0, beside=(NANOGPT,))],
        warm_up=lambda: torch.set_num_threads(1),
        close=partial(shutil.rmtree, folder, ignore_errors=True),
    )


def our_steps(run: Run, folder: Path) -> Callable[[], object]:
    """A function that takes the next step as a run does, logs and clocks included."""
    folder.mkdir(exist_ok=True)
    session = build(run, folder, torch.device("cpu"), 0, 1)
    made = chain.from_iterable(batches(session) for _ in count())
    return lambda: train_step(session, *next(made))


def nanogpt_steps(run: Run) -> Callable[[], object]:
    """A function that takes the next step of nanoGPT's loop."""
    text = FILE.read_text(encoding="utf-8")
    alphabet = {character: index for index, character in enumerate(sorted(set(text)))}
    ids = np.array([alphabet[character] for character in text], np.uint16)
    context, batch = run.facts["input_shape"][0], run.batch_size
    model = models.build(run.model, run.facts["input_shape"], run.facts["num_classes"], run.seed)
    parameters = list(model.parameters())
    groups = [
        {"params": [each for each in parameters if each.dim() >= 2], "weight_decay": 0.1},
        {"params": [each for each in parameters if each.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)  # as ours; nanoGPT's on a GPU

    def windows() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(ids) - context, (batch,))
        x, y = (
            torch.stack(
                [torch.from_numpy(ids[start + late : start + late + context].astype(np.int64)) for start in starts]
            )
            for late in (0, 1)
        )
        return x, y

    def steps() -> Iterator[None]:
        inputs, targets = windows()
        for step in count():
            for group in optimizer.param_groups:
                group["lr"] = run.lr(step)
            logits = model(inputs)
            loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1), ignore_index=-1)
            inputs, targets = windows()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            yield

    taken = steps()
    return lambda: next(taken)


def seconds(steps: int, loop: Callable[[], Callable[[], object]]) -> dict[str, float]:
    """Processor time of a step of a loop, over some of them."""
    step = loop()
    step()
    started = time.process_time()
    for _ in range(steps):
        step()
    return {"ms_per_step": 1000 * (time.process_time() - started) / steps}
