"""JSON Schema in words: the allowed values in an error message."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from resync.base.settings.errors import KeyPath, dotted, no_choice, show, suggestion

Schema = dict[str, Any]

_BOUNDS = (
    ("minimum", ">= {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "<= {}"),
    ("exclusiveMaximum", "< {}"),
    ("multipleOf", "multiple of {}"),
)
_TYPES = {"string": "text", "boolean": "true or false", "object": "a mapping"}


class _Generator(GenerateJsonSchema):
    """A faster generator: pydantic's own compiles a serializer for every default, which takes most of the time."""

    def encode_default(self, dft: Any) -> Any:
        return dft if dft is None or isinstance(dft, str | int | float) else super().encode_default(dft)


def schema_of(model: type[BaseModel]) -> Schema:
    """The JSON Schema of a model, built at every call."""
    return model.model_json_schema(schema_generator=_Generator)


@cache
def known_schema(model: type[BaseModel]) -> Schema:
    """The JSON Schema of a model, built once and shared: do not modify it."""
    return schema_of(model)


def in_one_line(error: ValidationError, model: type[BaseModel]) -> str:
    """Errors in the values from which `model` was built in Python, as one line."""
    lines = []
    for details in error.errors(include_url=False):
        message, key = explain(details, model, details["loc"])
        lines.append(": ".join(filter(None, (dotted((*details["loc"], *key)), message))))
    return f"{model.__name__.removeprefix('_')}: {'; '.join(dict.fromkeys(lines))}"


def explain(details: Mapping[str, Any], model: type[BaseModel], path: KeyPath) -> tuple[str, KeyPath]:
    """The text for one of pydantic's errors at `path` of `model`, and the key below `path` that it is about, if any."""
    kind, context, found = details["type"], details.get("ctx", {}), details["input"]
    schema = at(known_schema(model), path)
    if kind == "check":
        return context["message"], ()
    if kind == "missing":
        return f"missing, allowed: {describe(schema, known_schema(model))}", ()
    if kind == "extra_forbidden":
        keys = list(at(known_schema(model), path[:-1]).get("properties", {}))
        if not path[:-1]:  # an argument of a constructor, which takes no name of its own
            keys = [key for key in keys if key not in model.model_fields or model.model_fields[key].init is not False]
        allowed = f", allowed: {', '.join(keys)}" if keys else ""
        return f"unknown key{allowed}{suggestion(details['loc'][-1], keys)}", ()
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        tag = context["discriminator"].strip("'")
        return no_choice(found.get(tag) if isinstance(found, dict) else found, choices(schema)), (tag,)
    if details["loc"] and details["loc"][-1] == "[key]":
        of_mapping = at(known_schema(model), path[:-1])
        pattern = next(iter(of_mapping.get("patternProperties", {})), "")
        of_key = of_mapping.get("propertyNames") or {"type": "string", "pattern": pattern}
        return f"found the key {show(found)}, allowed: {_with_suggestion(of_key, found, model)}", ()
    return f"found {show(found)}, allowed: {_with_suggestion(schema, found, model)}", ()


def _with_suggestion(schema: Schema, found: Any, model: type[BaseModel]) -> str:
    return describe(schema, known_schema(model)) + suggestion(found, choices(schema))


def at(root: Schema, path: KeyPath) -> Schema:
    """The part of `root` that describes the value at `path`; empty (anything) where the schema is silent."""
    part = _resolve(root, root)
    for key in path:
        part = next(_inside(part, key, root), {})
    return part


def chosen(schema: Schema, data: Any) -> Any:
    """The member of a tagged union that `data` chooses; None if `schema` is something else."""
    tag = schema.get("discriminator", {}).get("propertyName")
    return data.get(tag) if tag and isinstance(data, dict) else None


def choices(schema: Schema) -> list[str]:
    """The texts that an enumeration or a tagged union allows; empty if it is something else."""
    if "anyOf" in schema:
        return [text for option in schema["anyOf"] for text in choices(option)]
    tags = schema.get("discriminator", {}).get("mapping")
    values = tags or schema.get("enum") or [schema[key] for key in ("const",) if key in schema]
    return [value for value in values if isinstance(value, str)]


def describe(schema: Schema, root: Schema) -> str:
    """The values that `schema` (a part of `root`) allows, as in `integer >= 1` or `list of number > 0`."""
    schema = _resolve(schema, root)
    if "anyOf" in schema:
        return " or ".join(describe(option, root) for option in schema["anyOf"])
    if "discriminator" in schema:
        return f"a mapping with the key {schema['discriminator']['propertyName']!r}"
    if "x-component" in schema:
        return "a mapping with the key 'name'"
    if "enum" in schema:
        return ", ".join(value if isinstance(value, str) else show(value) for value in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") != "array":
        return _describe_scalar(schema)
    if "prefixItems" in schema:
        return "[" + ", ".join(describe(item, root) for item in schema["prefixItems"]) + "]"
    length = f" with at least {schema['minItems']}" if "minItems" in schema else ""
    return f"list of {describe(schema.get('items', {}), root)}{length}"


def _describe_scalar(schema: Schema) -> str:
    kind: Any = schema.get("type", "any value")
    if isinstance(kind, list):
        return " or ".join(_describe_scalar({**schema, "type": option}) for option in kind)
    if kind == "null":
        return "null"
    limits = [text.format(f"{schema[key]:g}") for key, text in _BOUNDS if key in schema]
    if "pattern" in schema:
        limits.append(f"matching {schema['pattern']}")
    elif "minLength" in schema:
        limits.append("not empty")
    return " ".join([_TYPES.get(kind, kind), " and ".join(limits)]).strip()


def _inside(schema: Schema, key: str | int, root: Schema) -> Iterator[Schema]:
    for option in (schema, *schema.get("anyOf", ())):
        option = _resolve(option, root)
        if isinstance(key, int):
            prefix = option.get("prefixItems", [])
            child = prefix[key] if key < len(prefix) else option.get("items")
        else:
            patterns = list(option.get("patternProperties", {}).values())
            others = option.get("additionalProperties") or None
            child = option.get("properties", {}).get(key) or (patterns[0] if patterns else others)
        if isinstance(child, dict):
            yield _resolve(child, root)


def _resolve(schema: Schema, root: Schema) -> Schema:
    reference = schema.get("$ref")
    return root["$defs"][reference.removeprefix("#/$defs/")] if reference else schema
