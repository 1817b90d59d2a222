"""Data sets. `data/<name>.yaml` declares the facts about one, how it is prepared and how training reads it.

A data set that is not prepared is made by `build(**options) -> Dataset` in `data/<name>.py`; its reader, if it has one,
only declares the options.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from resync.base.errors import UserError
from resync.tasks.data.dataset import Dataset
from resync.tasks.data_sets.declaration import data_set

_READERS = {"memory": "prepared", "stream": "streamed", "text": "text", "characters": "characters"}
"""The modules of this room whose `read` makes a data set, by the kind of reader."""


def build(name: str, options: Mapping[str, Any]) -> Dataset:
    """The data set `name` with its declared options. Raises ValueError if it has not been prepared."""
    of = data_set(name)
    if of.reader is None or not of.is_prepared:
        if find_spec(f"resync.tasks.data.{name}") is None:
            kinds = ", ".join(_READERS)
            raise UserError(f"{of.file}: reader: missing, allowed: one of {kinds}, or a module {name}.py here")
        return import_module(f"resync.tasks.data.{name}").build(**options)
    return import_module(f"resync.tasks.data.{_READERS[of.reader.kind]}").read(of, **options)
