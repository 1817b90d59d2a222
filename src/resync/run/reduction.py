"""The small form of a published training, by one rule for all experiments.

A scale with a `reduced` section has every experiment: one that does not say what it is at that scale is its published
form with a small model, little data and few steps. Algorithm, optimizer, loss and the shapes of schedules and phases
stay, so that each series trains with the code that it is published with.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from pydantic import Field

from resync.data_sets.declaration import DataOptions
from resync.formulas.schedules import LearningRate
from resync.run.execution import Execution
from resync.run.parts import ModelOptions
from resync.run.run import RunLayer, SeriesLayer
from resync.run.training import RunSettings
from resync.settings import units
from resync.settings.base import PositiveInt, PositiveNumber, Settings
from resync.settings.options import Part, TrainingShape
from resync.settings.tree import Node, merge, without
from resync.settings.units import Convert, Unit, converted, field_types

_LEAST = 1e-4
"""The shortest time, in epochs, between two changes in a training; times are rounded to it."""


class ReducedTask(Settings):
    """What stands in for all data sets of a task."""

    data: DataOptions = Field(description="data set of the reduced runs")
    local_batch_size: PositiveInt = Field(description="largest number of samples per worker and step")


class Reduction(Settings):
    """How published settings become those of an experiment that does not declare the scale.

    Epochs and steps at which something changes keep their place in the training. A number of local steps is kept up to
    a quarter of the training, or up to its published share of the training if that is more.
    """

    workers: PositiveInt = Field(description="largest number of workers")
    processes: PositiveInt = Field(
        description="number of workers, each in a process of its own, of algorithms that are asynchronous in real time"
    )
    epochs: PositiveInt = Field(description="largest number of epochs")
    steps_per_epoch: PositiveInt = Field(description="largest number of steps per epoch")
    peak_lr: PositiveNumber = Field(
        description="largest learning rate; all learning rates, and the alpha of a period rule, shrink in proportion"
    )
    least_warmup_start: PositiveNumber = Field(
        description="smallest first learning rate of a warm-up, as a share of its peak: slow momentum divides by it"
    )
    evaluation: dict[str, PositiveInt] = Field(description="largest values of settings of the evaluation")
    tasks: dict[str, ReducedTask] = Field(description="data by task")
    models: dict[str, ModelOptions] = Field(
        description="what changes in models, by their names; a model that is not listed stays as it is"
    )


class ScaleFile(RunLayer):
    """A file of `scales/`: the settings that all experiments share at a scale, and how others are reduced to it."""

    reduced: Reduction | None = Field(
        default=None,
        description="how an experiment that declares scale paper and not this one is reduced to it; null: not at all",
    )


@dataclass(frozen=True)
class LoadedScale:
    """What a file of `scales/` holds: the layer of settings, and the reduction with its node, if there is one."""

    settings: Node
    reduction: Reduction | None
    node: Node | None


def reduced(node: Node, published: SeriesLayer, scale: LoadedScale) -> Node:
    """The merged layers `node` of a published series, which are valid as `published`, at a reduced scale."""
    assert scale.reduction
    assert scale.node
    kept = without(node, *Execution.model_fields, "resources", "seeds", "pilot_seeds", "start_checkpoint", "loss_scale")
    shape = _shape(published, scale.reduction)
    with_times = _converted(kept, published, conversion(published, scale.reduction), shape)
    small = _overlay(published, scale.reduction, scale.node, shape)
    return merge(merge(with_times, scale.settings), small)


def shortened(node: Node, run: RunSettings, epochs: int, steps_per_epoch: int) -> Node:
    """The settings `node` of a run for a training of this length, at the same rates."""
    by = Reduction(
        workers=run.workers, processes=run.workers, epochs=epochs, steps_per_epoch=steps_per_epoch,
        peak_lr=sys.float_info.max, least_warmup_start=_LEAST, evaluation={}, tasks={}, models={},
    )  # fmt: skip
    shape = _shape(run, by)
    lengths = {"epochs": shape.epochs, "steps_per_epoch": shape.steps_per_epoch}
    return merge(_converted(node, run, conversion(run, by), shape), _node(lengths, replace(node, path=())))


def _shape(published: RunSettings, by: Reduction) -> TrainingShape:
    """The shape of the reduced training, without its warm-up."""
    asynchronous = getattr(published.sync, "asynchronous", False)
    workers = min(published.workers, by.processes if asynchronous else by.workers)
    epochs, steps = min(published.epochs, by.epochs), min(published.steps_per_epoch, by.steps_per_epoch)
    return TrainingShape(workers, epochs, steps, epochs * steps, warmup_steps=0)


def _overlay(published: SeriesLayer, by: Reduction, node: Node, shape: TrainingShape) -> Node:
    """The settings that the reduction sets itself."""
    task, workers = published.task, shape.workers
    batch = min(published.local_batch_size, by.tasks[task].local_batch_size) if task in by.tasks else 1
    gpus = 2 if published.gpus_per_worker > 1 and batch % 2 == 0 else 1
    numbers: dict[str, Any] = {
        "workers": workers,
        "batch_size": workers * batch,
        "epochs": shape.epochs,
        "steps_per_epoch": shape.steps_per_epoch,
        "evaluation": {
            name: min(getattr(published.evaluation, name), most)
            for name, most in by.evaluation.items()
            if getattr(published.evaluation, name, None)
        },
    }
    if getattr(published.sync, "asynchronous", False):
        numbers |= {"processes": workers, "resources": {"cpus": workers}}
    if published.gpus_per_worker > 1:
        numbers["gpus_per_worker"] = gpus
    if published.micro_batch_size:
        numbers["micro_batch_size"] = batch // max(gpus, min(published.micro_batches, 2 if batch % 2 == 0 else 1))
    if published.precision == "fp16":  # CPUs have no fast fp16
        numbers["precision"] = "bf16"
    entries = {name: _node(value, node) for name, value in numbers.items()}
    for key, choice in (("tasks", task), ("models", published.model.name)):
        found = node.entries[key].child(choice)
        if found is not None:
            entries |= {"data": found.entries["data"]} if key == "tasks" else {"model": found}
    return replace(node, value=entries, path=())


def conversion(published: RunSettings, by: Reduction) -> Convert:
    """How the numbers that have a unit change."""
    _, epochs, steps_per_epoch, steps, _ = _shape(published, by)
    peak = _peak(published.schedule, published.shape)
    shrunk = min(1.0, by.peak_lr / peak)

    def epoch(value: float) -> float:
        return round(value * epochs / published.epochs, 4)

    def step(value: int) -> int:
        return value and max(1, round(value * steps / max(1, published.total_steps)))

    def local(value: int) -> int:
        return max(min(value, max(1, steps // 4)), step(value))

    def rate(value: float) -> float:
        return float(f"{value * shrunk:.4g}")

    one_step = round(1 / steps_per_epoch, 4)
    by_unit: dict[Unit, Callable[[Any], Any]] = {
        units.EPOCH: lambda value: value and min(max(epoch(value), _LEAST), epochs - _LEAST),
        units.WARMUP_EPOCHS: lambda value: value and min(max(epoch(value), one_step), epochs - one_step),
        units.STEPS: lambda value: value and min(step(value), steps - 1),
        units.LOCAL_STEPS: local,
        units.LEARNING_RATE: rate,
        units.WARMUP_LEARNING_RATE: lambda value: max(rate(value), by.least_warmup_start * rate(peak)),
        units.EVALUATIONS: lambda value: max(1, round(epoch(value))),
    }
    return lambda unit, number, _: by_unit[unit](number)


@lru_cache(maxsize=64)
def _peak(schedule: LearningRate, shape: TrainingShape) -> float:
    """The largest learning rate at a thousand steps of a training; mostly that of several series and scales."""
    lr = schedule.of(shape)
    return max(map(lr, range(0, max(1, shape.total_steps), max(1, shape.total_steps // 1000))))


def _converted(node: Node, settings: Settings, convert: Convert, shape: TrainingShape) -> Node:
    """The mapping `node`, which is valid as `settings`, with every number that has a unit converted."""
    kinds = field_types(type(settings))
    entries = {}
    for key, child in node.entries.items():
        value = getattr(settings, key)
        if isinstance(value, Settings) and isinstance(child.value, dict):
            entries[key] = _converted(child, value, convert, shape)
        else:
            entries[key] = _node(_apart(converted(child.plain(), kinds[key], convert), shape.epochs), child)
    plain = {key: child.plain() for key, child in entries.items()}
    fitted = settings.fitted(plain, shape) if isinstance(settings, Part) else {}
    return replace(node, value=entries | {key: _node(value, entries[key]) for key, value in fitted.items()})


def _apart(value: Any, end: int) -> Any:
    """Another value as it is; a list of [epoch, value] pairs with epochs apart that rounding has made equal."""
    if isinstance(value, list) and all(isinstance(each, list) and len(each) == 2 for each in value):
        for before, pair in pairwise(value):
            pair[0] = pair[0] if pair[0] > before[0] else min(round(before[0] + _LEAST, 4), (before[0] + end) / 2)
    return value


def _node(value: Any, place: Node) -> Node:
    """Plain data as if it were written at `place`."""
    if isinstance(value, dict):
        value = {key: _node(item, place) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        value = [_node(item, place) for item in value]
    return replace(place, value=value)
