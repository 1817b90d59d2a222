"""The declaration of a component's options: a subset of JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from resync.settings.base import Check, Items, Settings, Text

_PLAIN_TYPES: dict[str, Any] = {"boolean": bool, "integer": int, "number": float, "string": str}
_CONSTRAINTS = {
    "minimum": "ge",
    "exclusiveMinimum": "gt",
    "maximum": "le",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "pattern": "pattern",
    "minItems": "min_length",
    "maxItems": "max_length",
}


class Constraint(Settings):
    """A subset of JSON Schema for the values that an option, or an item of a list, may have."""

    type: Literal["boolean", "integer", "number", "string", "array"] | None = None
    enum: Items[Any] | None = Field(default=None, min_length=1)
    minimum: float | None = None
    exclusiveMinimum: float | None = None
    maximum: float | None = None
    exclusiveMaximum: float | None = None
    multipleOf: int | None = None
    pattern: str | None = None
    minItems: int | None = None
    maxItems: int | None = None
    items: Constraint | None = None

    def checks(self) -> Iterator[Check]:
        """Require a type or an enumeration, and items for an array."""
        if (self.type is None) == (self.enum is None):
            yield ("type",), "found both or none of type and enum, allowed: one of the two"
        if (self.type == "array") != (self.items is not None):
            yield ("items",), "allowed: together with type: array, and only there"

    def annotation(self) -> Any:
        """The Python type that pydantic validates."""
        if self.enum is not None:
            return Literal[self.enum]
        given = self.model_dump(exclude_none=True)
        limits = {_CONSTRAINTS[key]: value for key, value in given.items() if key in _CONSTRAINTS}
        if self.items is not None:
            kind: Any = Items[self.items.annotation()]  # type: ignore[misc]
        else:
            kind = _PLAIN_TYPES[self.type or ""]
        return Annotated[kind, Field(**limits)] if limits else kind


class Option(Constraint):
    """An option of a component: required unless it has a default; a null default makes it optional."""

    description: Text
    default: Any = None

    @property
    def required(self) -> bool:
        """Whether a configuration must give the option."""
        return "default" not in self.model_fields_set

    def field(self) -> tuple[Any, Any]:
        """Type and field of the option in its component's model."""
        if self.required:
            return self.annotation(), Field(description=self.description)
        optional = self.annotation() | None if self.default is None else self.annotation()
        return optional, Field(default=self.default, description=self.description)
