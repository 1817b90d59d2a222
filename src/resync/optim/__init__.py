"""Optimizers over rows. `optim/<name>.py` defines `build(parameters, **options) -> torch.optim.Optimizer`.

One torch optimizer updates all workers of a process: the workers' rows are one tensor, and the update is elementwise.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import nn
from torch.optim import Optimizer


def build(name: str, options: Mapping[str, Any], rows: nn.Parameter) -> Optimizer:
    """The optimizer `name` over `rows`; the learning rate is set by the training loop before every step."""
    return import_module(f"resync.optim.{name}").build([rows], **options)
