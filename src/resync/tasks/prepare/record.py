"""The record of prepared data, a JSON file beside them, and the errors that say how to make both again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resync.base.errors import UserError
from resync.base.files import text_of
from resync.base.settings.errors import show
from resync.tasks.data_sets.declaration import DataSet

_NAMES = {str: "text", int: "a whole number", dict: "a mapping"}


def read_record(of: DataSet, file: Path, wanted: Mapping[str, type]) -> dict[str, Any]:
    """The record in `file`. Raises ValueError if it has not these keys, with values of these types."""
    try:
        record = json.loads(text_of(file.read_bytes()))
    except (ValueError, RecursionError) as error:
        raise damaged(of, file, f"not JSON: {error}") from error
    if not isinstance(record, dict):
        raise damaged(of, file, f"found {show(record)}, allowed: a mapping")
    require(of, file, record, wanted)
    return record


def require(of: DataSet, file: Path, record: Mapping[str, Any], wanted: Mapping[str, type], within: str = "") -> None:
    """Raise ValueError if `record`, `within` that in `file`, has not these keys with values of these types."""
    for key, kind in wanted.items():
        if not isinstance(record.get(key), kind):
            raise damaged(of, file, f"{within}{key}: found {show(record.get(key))}, allowed: {_NAMES[kind]}")


def missing(of: DataSet, file: Path, flags: str = "") -> UserError:
    """The error for a missing file, with the command (and its `flags`) that makes it."""
    return of.error(f"{file} is missing; make it with: resync data prepare {of.name}{flags}")


def damaged(of: DataSet, file: Path, reason: object, others: str = "") -> UserError:
    """The error for a damaged file, which should be deleted, like the `others`, and made again."""
    again = f"delete it{others}, then: resync data prepare {of.name}"
    return of.error(f"{file}: damaged ({reason}); {again}")
