"""Synchronisation algorithms, one file each. `sync/<name>.py` defines `build`, the algorithm's class."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from resync.sync.algorithm import Algorithm, Training

__all__ = ["Algorithm", "Training", "build"]


def build(name: str, options: Mapping[str, Any], training: Training) -> Algorithm:
    """The algorithm `name` with its options. Raises ValueError for options that do not fit the training."""
    built: Algorithm = import_module(f"resync.sync.{name}").build(training, **options)
    return built
