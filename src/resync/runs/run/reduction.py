"""The small form of a published training, by one rule for all experiments.

A scale with a `reduced` section has every experiment: one that does not say what it is at that scale is its published
form with a small model, little data and few steps. Algorithm, optimizer, loss and the shapes of schedules and phases
stay, so that each series trains with the code that it is published with, and what differs between the series of an
experiment differs in their small forms too, as far as their few workers and steps allow.
"""

import sys
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from pydantic import Field

from resync.base.settings import units
from resync.base.settings.base import PositiveInt, PositiveNumber, Settings
from resync.base.settings.errors import KeyPath
from resync.base.settings.options import Part, TrainingShape
from resync.base.settings.tree import Node, merge, without
from resync.base.settings.units import Convert, Unit, converted, field_types
from resync.runs.run.execution import Execution
from resync.runs.run.run import RunLayer, SeriesLayer
from resync.runs.run.training import RunSettings
from resync.tasks.data_sets.declaration import DataOptions
from resync.tasks.models.options.base import ModelOptions
from resync.workers.formulas.schedules import LearningRate

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

    workers: PositiveInt = Field(description="largest number of workers, if that of all series is the same")
    most_workers: PositiveInt = Field(description="largest number of workers of series that differ in it")
    processes: PositiveInt = Field(
        description="number of workers, each in a process of its own, of algorithms that are asynchronous in real "
        "time; of series that differ in it, the smallest one: the next has twice as many"
    )
    epochs: PositiveInt = Field(description="largest number of epochs")
    steps_per_epoch: PositiveInt = Field(description="largest number of steps per epoch")
    peak_lr: PositiveNumber = Field(
        description="largest learning rate of an experiment; all of its learning rates, and the alpha of period rules, "
        "shrink in proportion"
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


class Reduced:
    """The small forms at a scale of the published series of an experiment, whose `layers` these are."""

    def __init__(self, layers: Sequence[SeriesLayer], scale: LoadedScale) -> None:
        assert scale.reduction
        assert scale.node
        self._scale, self._by, self._node = scale, scale.reduction, scale.node
        self._workers = {
            True: _doubling({layer.workers for layer in layers if _asynchronous(layer)}, self._by.processes),
            False: _halving({layer.workers for layer in layers if not _asynchronous(layer)}, self._by),
        }
        self._peak = max(_peak(layer.schedule, layer.shape) for layer in layers)
        self._local_steps = self._spread_local_steps(layers)

    def of(self, node: Node, published: SeriesLayer) -> Node:
        """The merged layers `node` of one of the series, which are valid as `published`, reduced."""
        not_kept = *Execution.model_fields, "resources", "seeds", "pilot_seeds", "start_checkpoint", "loss_scale"
        shape = self._shape(published)
        convert = conversion(published, self._by, shape, self._peak)

        def apart(unit: Unit, number: Any, place: KeyPath) -> Any:
            return self._local_steps[number] if unit is units.LOCAL_STEPS else convert(unit, number, place)

        with_times = _converted(without(node, *not_kept), published, apart, shape)
        small = _overlay(published, self._by, self._node, shape)
        return merge(merge(with_times, self._scale.settings), small)

    def _shape(self, published: SeriesLayer) -> TrainingShape:
        return _shape(published, self._by, self._workers[_asynchronous(published)][published.workers])

    def _spread_local_steps(self, layers: Sequence[SeriesLayer]) -> dict[int, int]:
        """The small form of every number of local steps: different ones where there are enough."""
        small: dict[int, int] = {}
        for layer in layers:
            convert = conversion(layer, self._by, self._shape(layer), self._peak)

            def note(unit: Unit, number: Any, place: KeyPath, convert: Convert = convert) -> Any:
                if unit is units.LOCAL_STEPS:
                    small[number] = max(convert(unit, number, place), small.get(number, 0))
                return number

            for part in (layer.sync, layer.optimizer):
                converted(part, type(part), note)
        limit = max(small.values(), default=0) + 1
        for number in sorted(small, reverse=True):
            small[number] = limit = max(min(small[number], limit - 1), min(number, 2))
        return small


def _asynchronous(settings: RunSettings) -> bool:
    return bool(getattr(settings.sync, "asynchronous", False))


def _doubling(workers: Set[int], least: int) -> dict[int, int]:
    return {number: min(number, least << index) for index, number in enumerate(sorted(workers))}


def _halving(workers: Set[int], by: Reduction) -> dict[int, int]:
    """The small form of every number of workers: each at most half of the next one."""
    small, limit = {}, by.workers if len(workers) == 1 else by.most_workers
    for number in sorted(workers, reverse=True):
        small[number] = max(1, min(number, limit))
        limit = small[number] // 2
    return small


def shortened(node: Node, run: RunSettings, epochs: int, steps_per_epoch: int) -> Node:
    """The settings `node` of a run for a training of this length, at the same rates."""
    by = Reduction(
        workers=run.workers, most_workers=run.workers, processes=run.workers, epochs=epochs,
        steps_per_epoch=steps_per_epoch, peak_lr=sys.float_info.max, least_warmup_start=_LEAST, evaluation={}, tasks={},
        models={},
    )  # fmt: skip
    shape = _shape(run, by, run.workers)
    lengths = {"epochs": shape.epochs, "steps_per_epoch": shape.steps_per_epoch}
    convert = conversion(run, by, shape, _peak(run.schedule, run.shape))
    return merge(_converted(node, run, convert, shape), _node(lengths, replace(node, path=())))


def _shape(published: RunSettings, by: Reduction, workers: int) -> TrainingShape:
    """The shape of the reduced training, without its warm-up."""
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
    if _asynchronous(published):
        numbers |= {"processes": workers, "resources": {"cpus": workers}}
    if published.gpus_per_worker > 1:
        numbers["gpus_per_worker"] = gpus
    if published.micro_batch_size:
        numbers["micro_batch_size"] = batch // max(gpus, min(published.micro_batches, 2 if batch % 2 == 0 else 1))
    entries = {name: _node(value, node) for name, value in numbers.items()}
    for key, choice in (("tasks", task), ("models", published.model.name)):
        chosen = node.entries[key].child(choice)
        if chosen is not None:
            entries |= {"data": chosen.entries["data"]} if key == "tasks" else {"model": chosen}
    return replace(node, value=entries, path=())


def conversion(published: RunSettings, by: Reduction, shape: TrainingShape, most: float) -> Convert:
    """How the numbers that have a unit change in a training of this shape; `most` is the experiment's largest rate."""
    _, epochs, steps_per_epoch, steps, _ = shape
    peak = _peak(published.schedule, published.shape)
    shrunk = min(1.0, by.peak_lr / most)

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
    if isinstance(value, list) and all(isinstance(item, list) and len(item) == 2 for item in value):
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
