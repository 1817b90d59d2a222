"""Building models from positioned values; pydantic's errors become messages with file, line and key path."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from resync.base.settings.base import PACKAGE, Reading, Settings
from resync.base.settings.describe import at, chosen, explain, known_schema
from resync.base.settings.errors import ConfigError, KeyPath, Problem, closest, raise_if_any
from resync.base.settings.tree import Node

_Model = TypeVar("_Model", bound=BaseModel)


def validate(
    model: type[_Model], node: Node, package: Path = PACKAGE, *, partial: bool = False
) -> tuple[_Model | None, list[Problem]]:
    """Build `model` from `node`: the model and no problems, or None and every problem found.

    Of a `partial` layer, which others will complete, all except missing keys and failed cross checks.
    """
    data, reading = node.plain(), Reading(package, partial)
    try:
        return model.model_validate(data, context=reading), []
    except ValidationError as error:
        return None, list(_problems(error, model, node, data, reading))


def validated(model: type[_Model], node: Node, package: Path = PACKAGE) -> _Model:
    """`model` built from `node`. Raises ConfigError with every problem found."""
    built, problems = validate(model, node, package)
    raise_if_any(problems)
    assert built is not None
    return built


@dataclass(frozen=True)
class _Place:
    """The place of an error: the deepest existing node, the missing keys below it, and the expected model."""

    node: Node
    absent: KeyPath
    model: type[BaseModel]
    field_path: KeyPath


def _problems(
    error: ValidationError, model: type[BaseModel], node: Node, data: Any, reading: Reading
) -> Iterator[Problem]:
    errors = error.errors(include_url=False)
    places = [_locate(details["loc"], model, node, data, reading.readers) for details in errors]
    misspelt = {
        (details["loc"][:-1], closest(details["loc"][-1], place.model.model_fields))
        for details, place in zip(errors, places, strict=True)
        if details["type"] == "extra_forbidden"
    }
    for details, place in zip(errors, places, strict=True):
        kind, loc = details["type"], details["loc"]
        cause = details.get("ctx", {}).get("error")
        if isinstance(cause, ConfigError):  # a component's own file is broken
            raise cause
        if reading.partial and kind in ("missing", "union_tag_not_found") and getattr(place.model, "layered", True):
            continue
        if kind == "missing" and (loc[:-1], loc[-1]) in misspelt:
            continue  # the unknown key already says it
        if kind == "too_short" and any(other["loc"][: len(loc)] == loc != other["loc"] for other in errors):
            continue  # the items are wrong, not too few
        message, key = explain(details, place.model, place.field_path)
        yield place.node.problem(message, *place.absent, *key)


def _locate(loc: KeyPath, model: type[BaseModel], node: Node, data: Any, readers: dict[int, type[Settings]]) -> _Place:
    """Follow pydantic's location through the nodes; it also names chosen union members, which are not keys."""
    field_path: KeyPath = ()
    absent: KeyPath = ()
    in_value = False
    for key in loc:
        if key == "[key]" or (in_value and _is_choice(key, model, field_path, data)):
            in_value = False
            continue
        if id(data) in readers:
            model, field_path = readers[id(data)], ()
        field_path = (*field_path, key)
        child = None if absent else node.child(key)
        if child is None:
            absent = (*absent, key)
        else:
            node, data = child, data[key]
            in_value = True
    return _Place(node, absent, model, field_path)


def _is_choice(key: str | int, model: type[BaseModel], field_path: KeyPath, data: Any) -> bool:
    """Whether `key` names the union member that `data` chooses; a schema is built only where this is possible."""
    return isinstance(data, dict) and key in data.values() and key == chosen(at(known_schema(model), field_path), data)
