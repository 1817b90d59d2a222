"""Components: parts of a run that are found by name, each declared in a YAML file beside its code.

`sync/local.yaml` declares the options of `sync/local.py`. Reading it imports neither torch nor the code, so
that a workflow manager or a cluster job can validate a configuration in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    create_model,
)
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from resync.config.options import Option
from resync.config.preparation import Preparation, TextPreparation
from resync.config.readers import Reader
from resync.settings.base import PACKAGE, Check, Settings, Text, checks_failed, reading_of
from resync.settings.errors import ConfigError, Problem, no_choice, not_among, raise_if_any, show
from resync.settings.loader import load
from resync.settings.options import option_names, options_of
from resync.settings.tree import Node
from resync.settings.validation import validate


class _ComponentFile(Settings):
    description: Text
    options: dict[str, Option] = Field(default={})
    facts: dict[str, Any] = Field(default={})
    reader: Reader | None = None
    prepare: Preparation | None = None
    prepare_text: TextPreparation | None = None

    def checks(self) -> Iterator[Check]:
        """Require that no option hides a reserved name or an option of the reader."""
        for reserved in {"name", "component", "options"} & set(self.options):
            yield ("options", reserved), "reserved, allowed: another name"
        if self.reader:
            yield from self.reader.problems(self.prepare or self.prepare_text, self.facts)
            for hidden in set(self.reader.options()) & set(self.options):
                yield ("options", hidden), f"found beside the reader's own {hidden}, allowed: another name"


@dataclass(frozen=True)
class Component:
    """The declaration of a component; `config` is the model of its name and options in a run."""

    room: str
    name: str
    description: str
    options: Mapping[str, Option]
    facts: Mapping[str, Any]
    file: Path
    preparation: Preparation | None = None
    text: TextPreparation | None = None
    reader: Reader | None = None

    @property
    def is_prepared(self) -> bool:
        """Whether the data set is converted to a file of its own before training."""
        return bool(self.preparation or self.text)

    def variant_of(self, images: str) -> str:
        """The name of these images in results: `cifar10-jpeg-q75@16` is that copy, averaged to 16x16 pixels."""
        assert self.preparation
        return images if self.preparation.average == 1 else f"{images}@{self.facts['input_shape'][-1]}"

    @property
    def published_variant(self) -> str | None:
        """The name in results of the data that papers use (the first source of images); None for unconverted data."""
        if self.text:
            return self.text.variant
        return self.variant_of(self.preparation.sources[0].variant) if self.preparation else None

    @cached_property
    def config(self) -> type[ComponentConfig]:
        """The pydantic model of a mapping that chooses this component."""
        fields: dict[str, Any] = {
            "name": (Literal[self.name], Field(default=self.name, description=self.description)),
            **{name: option.field() for name, option in self.options.items()},
        }
        model = create_model(
            f"{self.room}.{self.name}",
            __base__=ComponentConfig,
            __doc__=self.description,
            **fields,
        )
        model.component = self
        return model


class ComponentConfig(Settings):
    """A chosen component: its `name`, its options as attributes, and its declaration as `component`."""

    component: ClassVar[Component]
    name: str

    @property
    def options(self) -> dict[str, Any]:
        """The options by name, defaults included: what the component's code is called with."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "name"}

    if TYPE_CHECKING:

        def __getattr__(self, option: str) -> Any:
            """An option, for the type checker."""


def names(room: str, package: Path = PACKAGE) -> list[str]:
    """The names of a room's components, sorted."""
    return list(_names(room, package.absolute())) or option_names(room, package)


def component(room: str, name: str, package: Path = PACKAGE) -> Any:
    """The declaration of one component. Raises ConfigError for an unknown name or a broken declaration."""
    if option_names(room, package):
        return options_of(room, name, package)
    return _component(room, name, package.absolute())


def prepared_names(package: Path = PACKAGE) -> list[str]:
    """The names of the data sets that are converted to a file of their own before training, sorted."""
    return [name for name in names("data", package) if component("data", name, package).is_prepared]


@cache
def _names(room: str, package: Path) -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in (package / room).glob("*.yaml")))


@cache
def _component(room: str, name: str, package: Path) -> Component:
    known = names(room, package)
    if name not in known:
        raise ConfigError([f"{room}: {not_among(name, known)}"])
    file = package / room / f"{name}.yaml"
    node = load(file)
    declared, problems = validate(_ComponentFile, node, package)
    raise_if_any(problems)
    assert declared is not None
    if room == "data":
        raise_if_any(_missing_counts(declared.facts, node))
    options = declared.options | (declared.reader.options() if declared.reader else {})
    parts = options, declared.facts, file, declared.prepare, declared.prepare_text, declared.reader
    result = Component(room, name, declared.description, *parts)
    raise_if_any(_wrong_defaults(result, node))
    return result


def _missing_counts(facts: Mapping[str, Any], node: Node) -> Iterator[Problem]:
    """Yield missing sample counts, which the length of an epoch follows from."""
    for key in ("train_samples", "val_samples"):
        if type(facts.get(key)) is not int or facts[key] < 1:
            yield node.problem(f"found {show(facts.get(key))}, allowed: integer >= 1", "facts", key)


def _wrong_defaults(of: Component, node: Node) -> Iterator[Problem]:
    try:
        of.config.model_validate({})
    except ValidationError as error:
        for details in error.errors():
            if details["type"] != "missing":
                yield node.problem(details["msg"], "options", *details["loc"], "default")


@dataclass(frozen=True)
class FromRoom:
    """Annotation of a ComponentConfig field: the mapping's `name` chooses the model within one room."""

    room: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate with the chosen component's model, and dump all of its options."""
        return core_schema.with_info_plain_validator_function(
            self._validate,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value, info: value.model_dump(mode=info.mode, exclude_none=info.exclude_none),
                info_arg=True,
            ),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Only name the room; the export replaces it by its components."""
        return {"type": "object", "x-component": self.room}

    def _validate(self, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, ComponentConfig):
            return value
        reading = reading_of(info)
        if not isinstance(value, dict):
            raise PydanticKnownError("dict_type")
        if "name" not in value and reading.partial:
            return value
        name, known = value.get("name"), names(self.room, reading.package)
        if name not in known:
            raise checks_failed(self.room, [(("name",), no_choice(name, known))])
        chosen = component(self.room, name, reading.package)
        return chosen.config.model_validate(value, context=info.context)
