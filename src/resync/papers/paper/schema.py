"""JSON Schemas of the configuration files, for editors; `resync schema` exports them from the models."""

import json
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from resync.base.files import write_text
from resync.base.settings.base import PACKAGE
from resync.base.settings.describe import Schema, schema_of
from resync.base.settings.options import Options, first_paragraph
from resync.base.settings.tree import CHOICES
from resync.papers.paper.claim import ClaimsFile
from resync.papers.paper.logs import LogsFile
from resync.papers.paper.paper import ExperimentFile, PaperFile
from resync.papers.paper.published import PublishedFile
from resync.papers.render.options.base import KindOptions
from resync.runs.metrics.columns import ColumnMap
from resync.runs.run.reduction import ScaleFile
from resync.runs.run.run import Run
from resync.tasks.data_sets.declaration import DataOptions
from resync.tasks.models.options.base import ModelOptions
from resync.workers.optim.options.base import OptimizerOptions
from resync.workers.sync.options.base import SyncOptions

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CHOSEN: tuple[type[Options], ...] = (DataOptions, ModelOptions, OptimizerOptions, SyncOptions)
_ROOMS = {options.room: options for options in _CHOSEN}


def schemas(package: Path = PACKAGE) -> dict[str, Schema]:
    """The schemas by file name."""
    experiment = _partial(_exported(ExperimentFile, package))
    experiment["required"] = ["expect", "base", "series", "scales"]
    experiment["$defs"]["SeriesLayer"]["required"] = ["label"]
    return {
        "paper.schema.json": _with_kinds(_exported(PaperFile, package), package),
        "experiment.schema.json": experiment,
        "published.schema.json": _exported(PublishedFile, package),
        "claims.schema.json": _exported(ClaimsFile, package),
        "logs.schema.json": _exported(LogsFile, package),
        "columns.schema.json": _exported(ColumnMap, package),
        "scale.schema.json": _partial(_exported(ScaleFile, package)),
        "run.schema.json": _exported(Run, package),
    }


def export(directory: Path, package: Path = PACKAGE) -> None:
    """Write every schema into `directory`."""
    for name, schema in schemas(package).items():
        write_text(directory / name, json.dumps(schema, indent=2) + "\n")


def _exported(model: type[BaseModel], package: Path) -> Schema:
    """The schema of a file that holds all of `model`, with the components of every room it refers to."""
    schema = schema_of(model)
    for room in sorted(_rooms(schema)):
        for name in _ROOMS[room].names(package):
            config = schema_of(_ROOMS[room].named(name, package))
            schema["$defs"] |= config.pop("$defs", {})
            schema["$defs"][f"{room}.{name}"] = config
    return {"$schema": _DIALECT, **_map(schema, lambda part: _plain(part, package))}


def _rooms(schema: Schema) -> set[str]:
    """The rooms whose components may appear in a file of this schema."""
    rooms: set[str] = set()

    def note(part: Schema) -> Schema:
        rooms.update({part["x-component"]} if "x-component" in part else ())
        return part

    _map(schema, note)
    return rooms


def _plain(part: Schema, package: Path) -> Schema:
    """The part without pydantic's titles, and with a choice among its components in place of a room."""
    part = {key: value for key, value in part.items() if key not in ("title", "discriminator")}
    if isinstance(part.get("description"), str):
        part["description"] = first_paragraph(part["description"])
    if unit := part.pop("x-unit", None):
        part["description"] = f"{part['description']} ({unit})" if "description" in part else unit
    for choice in CHOICES:
        declared = part.get("properties", {}).get(choice, {})
        if "const" in declared:  # a default in Python, required in files
            part["required"] = list(dict.fromkeys([choice, *part.get("required", [])]))
            described = {"description": part["description"], **declared}
            part["properties"] = {**part["properties"], choice: described}
    if "x-component" not in part:
        return part
    room, fact = part["x-component"], part.get("x-only")
    of = _ROOMS[room]
    chosen = [name for name in of.names(package) if not fact or getattr(of.named(name, package), fact)]
    kept = {key: value for key, value in part.items() if key not in ("type", "x-component", "x-only")}
    return {**kept, "oneOf": [{"$ref": f"#/$defs/{room}.{name}"} for name in chosen]}


def _partial(schema: Schema) -> Schema:
    """The schema for a layer that others complete: no key is required, so that several choices may match."""

    def relaxed(part: Schema) -> Schema:
        part = {key: value for key, value in part.items() if key != "required"}
        return {("anyOf" if key == "oneOf" else key): value for key, value in part.items()}

    return _map(schema, relaxed)


def _with_kinds(schema: Schema, package: Path) -> Schema:
    """The schema with the options of each kind for figures and tables."""
    item = schema["$defs"].pop("Item")
    kinds = []
    for name in KindOptions.names(package):
        kind = KindOptions.named(name, package)
        options = _map(schema_of(kind), lambda part: _plain(part, package))
        schema["$defs"] |= options.pop("$defs", {})
        del options["properties"]["name"]
        options["required"].remove("name")
        chosen = {"kind": {"const": name, "description": kind.description()}, "options": options}
        properties = {**item["properties"], **chosen}
        required = [*item["required"], *(["options"] if options.get("required") else [])]
        if kind.shows_series:
            properties["series"] = {**properties["series"], "minItems": 1}
            required.append("series")
        else:
            del properties["series"]
        schema["$defs"][f"render.{name}"] = {**item, "properties": properties, "required": required}
        kinds.append({"$ref": f"#/$defs/render.{name}"})
    schema["$defs"]["Item"] = {"oneOf": kinds} if kinds else item
    return schema


def _map(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """`change` applied to a schema and to every schema inside it, but not to examples, defaults or names."""
    result: Schema = {}
    for key, value in change(schema).items():
        if key in ("properties", "patternProperties", "$defs"):
            result[key] = {name: _map(part, change) for name, part in value.items()}
        elif key in ("anyOf", "oneOf", "prefixItems"):
            result[key] = [_map(part, change) for part in value]
        elif key in ("items", "additionalProperties", "propertyNames") and isinstance(value, dict):
            result[key] = _map(value, change)
        else:
            result[key] = value
    return result
