"""Tasks: what a model learns from a data set, and the settings that only some tasks have."""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

from resync.settings.base import Check, Settings

_TASKS_WITH = {
    ("search",): ("quadratics",),
    ("loss", "label_noise"): ("classification",),
    ("loss", "mixup"): ("classification",),
    ("heterogeneity",): ("classification",),
    ("memory_format",): ("classification",),
    ("evaluation", "sharpness_batches"): ("classification", "language_model"),
    ("evaluation", "beam_search"): ("translation",),
    ("evaluation", "random_batches"): ("language_model",),
    ("evaluation", "sample_characters"): ("language_model",),
}
"""The tasks that have a setting, by its keys; all tasks have the others."""


def task_of(facts: Mapping[str, Any]) -> str:
    """The task of a data set with these facts."""
    return str(facts.get("task", "classification"))


def settings_of_others(task: str, run: Settings) -> Iterator[Check]:
    """Yield the settings of a run that its task does not have."""
    for keys, tasks in _TASKS_WITH.items():
        value = reduce(getattr, keys, run)
        if value is not None and task not in tasks:
            yield keys, f"has no effect in {task}, allowed: null"
