"""Synchronisation algorithms, one file each.

`sync/<name>.py` defines `build(training, options) -> Algorithm`, usually the algorithm's class itself, and
a module of `sync/options` its options. Importing this package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resync.workers.sync.algorithm import Algorithm, Training
    from resync.workers.sync.options.base import SyncOptions

__all__ = ["build"]


def build(options: SyncOptions, training: Training) -> Algorithm:
    """The algorithm chosen by these options, which are in steps. Raises ValueError if they do not fit the training."""
    built: Algorithm = import_module(f"resync.workers.sync.{options.name}").build(training, options)
    return built
