"""Synchronisation algorithms, one file each. `sync/<name>.py` defines `build`, the algorithm's class."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from resync.sync.algorithm import Algorithm
from resync.transport import Transport
from resync.workers import Workers


def build(
    name: str,
    options: Mapping[str, Any],
    workers: Workers,
    transport: Transport,
    total_steps: int,
    warmup_steps: int = 0,
) -> Algorithm:
    """The algorithm `name` over the given workers, for a run of `total_steps` steps."""
    module = import_module(f"resync.sync.{name}")
    return module.build(workers, transport, total_steps, warmup_steps, **options)
