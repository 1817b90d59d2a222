"""Data sets. `data/<name>.yaml` declares the facts on one, how it is prepared and how training reads it.

One that is not prepared has `data/<name>.py` with `build(**options) -> Dataset`; its reader declares the options only.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from resync.config.data_sets import data_set
from resync.data.dataset import Dataset

_READERS = {"memory": "prepared", "stream": "streamed", "text": "text"}
"""The modules of this room whose `read` makes a data set, by the kind of its reader."""


def build(name: str, options: Mapping[str, Any]) -> Dataset:
    """The data set `name` with its declared options. Raises ValueError where it has not been prepared."""
    of = data_set(name)
    if of.reader is None or not of.is_prepared:
        if find_spec(f"resync.data.{name}") is None:
            raise ValueError(f"{of.file}: reader: missing, allowed: memory, stream or text, or a module {name}.py here")
        return import_module(f"resync.data.{name}").build(**options)
    return import_module(f"resync.data.{_READERS[of.reader.kind]}").read(of, **options)
