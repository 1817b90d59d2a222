"""Synchronisation algorithms, one file each.

`sync/<name>.py` defines `build(training, options) -> Algorithm`, mostly the algorithm's class, and
`sync/options/<name>.py` its options. Importing this package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resync.config.parts import SyncOptions
    from resync.sync.algorithm import Algorithm, Training

__all__ = ["build"]


def build(options: SyncOptions, training: Training) -> Algorithm:
    """The algorithm that these options, in steps, choose. Raises ValueError where they do not fit the training."""
    built: Algorithm = import_module(f"resync.sync.{options.name}").build(training, options)
    return built
