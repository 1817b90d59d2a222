"""The unit of a number in a setting, as part of the setting's type.

`start: Epoch = 0.0` says what the number counts. What converts numbers walks the types of the settings and asks for
their units, never for the names of settings: `Part.in_steps`, the reduction of a scale, the JSON Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from resync.base.settings.errors import KeyPath


@dataclass(frozen=True)
class Unit:
    """What a number counts, in words."""

    name: str

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(schema) | {"x-unit": self.name}


EPOCH = Unit("epochs")
WARMUP_EPOCHS = Unit("epochs of the warm-up")
STEPS = Unit("steps")
LOCAL_STEPS = Unit("local steps")
LEARNING_RATE = Unit("inner learning rate")
WARMUP_LEARNING_RATE = Unit("inner learning rate at the start of the warm-up")
EVALUATIONS = Unit("evaluations")

Epoch = Annotated[float, Field(ge=0), EPOCH]
"""A time of the training, in epochs from its start; in options in steps a whole number of steps."""
Steps = Annotated[int, Field(ge=0), STEPS]
LocalSteps = Annotated[int, Field(ge=1), LOCAL_STEPS]
InnerLR = Annotated[float, Field(gt=0), LEARNING_RATE]
"""A learning rate of the inner optimizer, or a number in its unit. Outer learning rates are pure numbers."""

Convert = Callable[[Unit, Any, KeyPath], Any]
"""Gives the number that replaces a number of this unit at this place."""


@cache
def field_types(model: type[BaseModel]) -> dict[str, Any]:
    """The whole type of every field, with its metadata."""
    return {name: Annotated[(field.annotation, *field.metadata, None)] for name, field in model.model_fields.items()}


def converted(value: Any, kind: Any, convert: Convert, place: KeyPath = ()) -> Any:
    """`value`, of type `kind`, with every number that has a unit replaced."""
    if isinstance(value, BaseModel):
        types = field_types(type(value))
        fields = {name: converted(field, types[name], convert, (*place, name)) for name, field in value}
        return value.model_copy(update=fields)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        unit = next((argument for argument in arguments if isinstance(argument, Unit)), None)
        if unit and isinstance(value, (int, float)):
            return convert(unit, value, place)
        return converted(value, arguments[0], convert, place)
    if origin in (Union, UnionType):
        results = (converted(value, argument, convert, place) for argument in arguments)
        return next((result for result in results if result is not value), value)
    if isinstance(value, (list, tuple)) and origin in (list, tuple, Sequence):
        kinds = arguments if origin is tuple and arguments[-1] is not Ellipsis else [arguments[0]] * len(value)
        pairs = enumerate(zip(value, kinds, strict=True))
        return type(value)(converted(item, kind, convert, (*place, index)) for index, (item, kind) in pairs)
    return value
