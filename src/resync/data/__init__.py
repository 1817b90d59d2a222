"""Data sets. `data/<name>.py` defines `build(**options) -> Dataset`; `<name>.yaml` its options and facts."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from resync.data.dataset import Dataset


def build(name: str, options: Mapping[str, Any]) -> Dataset:
    """The data set `name` with its declared options."""
    return import_module(f"resync.data.{name}").build(**options)
