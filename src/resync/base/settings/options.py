"""Options of components: parts of a training that are chosen by name.

Every class in a module of `sync/options/` whose field `name` has a default declares the options of an algorithm: the
name, type, default, range and help line of each, in one place for configurations, JSON Schema, the component's code
and callers in Python. The code is in the module of that name, `sync/local.py`. Reading the options imports neither
torch nor that code, so that a workflow manager or a cluster job can validate a configuration in milliseconds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import cleandoc
from pathlib import Path
from textwrap import fill
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError, ValidationInfo
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from resync.base.errors import UserError
from resync.base.settings.base import PACKAGE, Check, Settings, checks_failed, reading_of
from resync.base.settings.describe import in_one_line
from resync.base.settings.errors import ConfigError, KeyPath, dotted, no_choice, not_among
from resync.base.settings.units import EPOCH, Unit, converted


class TrainingShape(NamedTuple):
    """What parts of a training refer to: K workers, its length in epochs and in steps, T, and that of its warm-up."""

    workers: int
    epochs: int
    steps_per_epoch: int
    total_steps: int
    warmup_steps: int


class Part(Settings):
    """Settings of a part of a training, in which a time of type `Epoch` is in epochs, or in steps.

    A configuration has epochs, as fractional numbers, which `in_steps(steps_per_epoch)` converts once. The code that
    trains has whole numbers of steps. Options that Python code gives to `resync.attach` count steps from the start;
    `in_steps()` makes sure that they are whole.
    """

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """The values that differ from their defaults, as they are typed in Python."""
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        return ((name, value) for name, value in super().__repr_args__() if value != defaults.get(name or ""))

    def in_steps(self, steps_per_epoch: int | None = None) -> Self:
        """The same settings in whole steps, from epochs; without `steps_per_epoch`, from numbers of steps.

        Raises ValueError for epochs that are steps already, and for a number of steps that is not whole.
        """

        def steps(unit: Unit, number: float, place: KeyPath) -> float:
            if unit is not EPOCH:
                return number
            if steps_per_epoch is not None and isinstance(number, float):
                return round(number * steps_per_epoch)
            if steps_per_epoch is None and number == int(number):
                return int(number)
            allowed = "a whole number of steps" if steps_per_epoch is None else "epochs: these are steps already"
            raise UserError(f"{type(self).__name__}: {dotted(place)}: found {number:g}, allowed: {allowed}")

        settings: Self = converted(self, type(self), steps)
        return settings

    def fitted(self, reduced: dict[str, Any], shape: TrainingShape) -> dict[str, Any]:
        """Changes of settings that were `reduced` one by one to a smaller training, so that they fit together again."""
        return {}

    def checks_in(self, shape: TrainingShape) -> Iterator[Check]:
        """Yield contradictions between this part, in epochs, and the training that it belongs to."""
        for name, value in self:
            if isinstance(value, Part):
                yield from (((name, *key), message) for key, message in value.checks_in(shape))


class Options(Part):
    """A chosen component: its name and its options as attributes.

    Each room has a subclass with `room` and the properties that its components must declare; as the type of a field it
    stands for the options of any of them, chosen by `name`. The first paragraph of a component's docstring is its
    description.
    """

    room: ClassVar[str]
    name: str

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        fields = {name: field for name, field in cls.model_fields.items() if field.description}
        defaults = {
            name: "" if field.is_required() else f" (default: {field.default!r})" for name, field in fields.items()
        }
        lines = [f"    {name}: {field.description}{defaults[name]}" for name, field in fields.items()]
        wrapped = [fill(line, 120, subsequent_indent="        ", break_long_words=False) for line in lines]
        cls.__doc__ = "\n".join([cleandoc(cls.__doc__ or ""), *(["", "Options:"] if lines else []), *wrapped])

    @classmethod
    def description(cls) -> str:
        return first_paragraph(cleandoc(cls.__doc__ or ""))

    @classmethod
    def names(cls, package: Path = PACKAGE) -> list[str]:
        return option_names(cls.room, package)

    @classmethod
    def named(cls, name: str, package: Path = PACKAGE) -> type[Self]:
        """The class of a component of this room. Raises ConfigError for an unknown name."""
        options: Any = options_of(cls.room, name, package)
        return options

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """For a room: validate with the class of the chosen component, and dump all of its options."""
        if "room" not in vars(cls):
            return handler(source)
        return core_schema.with_info_plain_validator_function(
            cls._chosen,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value, info: value.model_dump(mode=info.mode, exclude_none=info.exclude_none),
                info_arg=True,
            ),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """For a room: only name it; the export replaces it by its components."""
        return {"type": "object", "x-component": cls.room} if "room" in vars(cls) else handler(schema)

    @classmethod
    def _chosen(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, cls):
            return value
        reading = reading_of(info)
        if not isinstance(value, dict):
            raise PydanticKnownError("dict_type")
        if "name" not in value and reading.partial:
            return value
        name, known = value.get("name"), cls.names(reading.package)
        if name not in known:
            raise checks_failed(cls.room, [(("name",), no_choice(name, known))])
        return cls.named(name, reading.package).model_validate(value, context=info.context)


def first_paragraph(text: str) -> str:
    """The first paragraph of a text, on one line."""
    return " ".join(text.split("\n\n")[0].split())


def option_names(room: str, package: Path = PACKAGE) -> list[str]:
    """The names of a room's components, sorted: those of the classes in the modules of its folder `options`."""
    return sorted(_components(room, package))


@cache
def options_of(room: str, name: str, package: Path = PACKAGE) -> type[Options]:
    """The class of a component's options. Raises ConfigError for an unknown name or a broken declaration."""
    components = _components(room, package)
    if name not in components:
        raise ConfigError([f"{room}: {not_among(name, sorted(components))}"])
    options = components[name]
    try:
        options.model_validate({})
    except ValidationError as error:
        wrong = [details for details in error.errors() if details["type"] != "missing"]
        if wrong:
            raise ConfigError([f"{_file_of(options)}: default of {in_one_line(error, options)}"]) from None
    return options


@cache
def _components(room: str, package: Path) -> dict[str, type[Options]]:
    components: dict[str, type[Options]] = {}
    for file in sorted(package.glob(f"*/{room}/options/*.py")):
        module = _module(file, package)
        for member in vars(module).values():
            if isinstance(member, type) and issubclass(member, Options) and member.__module__ == module.__name__:
                name = member.model_fields["name"].default
                if isinstance(name, str) and components.setdefault(name, member) is not member:
                    other = _file_of(components[name]).name
                    message = f"{member.__name__}.name: found {name!r}, which {other} has too, allowed: another name"
                    raise ConfigError([f"{file}: {message}"])
    return components


def _file_of(options: type[Options]) -> Path:
    return Path(sys.modules[options.__module__].__file__ or "")


def _module(file: Path, package: Path) -> ModuleType:
    """The module of a file, which may lie outside this package."""
    name = ".".join(file.relative_to(package).with_suffix("").parts).removesuffix(".__init__")
    if package == PACKAGE:
        return import_module(f"resync.{name}")
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module  # pydantic looks up annotations there
    spec.loader.exec_module(module)
    return module
