"""Transforms of the local workers' batches between the data set and the gradient."""

from collections.abc import Callable
from typing import Any

from resync.data.sampling import Share
from resync.run import Run
from resync.train.label_noise import LabelNoise
from resync.train.mixup import Mixup

BatchTransform = Callable[[Any, Any, int, int], tuple[Any, Any]]
"""(inputs, targets, step, first worker) -> (inputs, targets), all of them [k, b, ...]."""


def transforms_of(run: Run, share: Share) -> tuple[BatchTransform, ...]:
    """The transforms of a run, in the order of their application, for a process with this share of a batch."""
    classes = run.facts["num_classes"]
    found: list[BatchTransform] = []
    if run.loss.label_noise:
        found.append(LabelNoise(run.loss.label_noise, classes, run.seed, share))
    if run.loss.mixup:
        found.append(Mixup(run.loss.mixup, classes, run.micro_batches, run.seed, share))
    return tuple(found)
