"""Data sets: found by name, each declared by `data/<name>.yaml`.

Reading a declaration imports neither torch nor the code of the data set, so that a workflow manager or a cluster job
can validate a configuration in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, create_model

from resync.data_sets.preparation import CharacterPreparation, Preparation, TextPreparation
from resync.data_sets.readers import Reader
from resync.settings.base import PACKAGE, Check, Settings, Text
from resync.settings.errors import ConfigError, Problem, not_among, raise_if_any, show
from resync.settings.loader import load
from resync.settings.options import Options
from resync.settings.tree import Node
from resync.settings.validation import validated


class _DataSetFile(Settings):
    description: Text
    download: Text | None = None
    facts: dict[str, Any] = Field(default={})
    reader: Reader | None = None
    prepare: Preparation | None = None
    prepare_text: TextPreparation | None = None
    prepare_characters: CharacterPreparation | None = None

    def checks(self) -> Iterator[Check]:
        if self.reader:
            prepared = self.prepare or self.prepare_text or self.prepare_characters
            yield from self.reader.problems(prepared, self.facts)


@dataclass(frozen=True)
class DataSet:
    """The declaration of a data set; `config` is the model of its name and options in a run.

    `download` is a command for a shell that puts the originals below `$RESYNC_DATA`, if there is one.
    """

    name: str
    description: str
    facts: Mapping[str, Any]
    file: Path
    preparation: Preparation | None = None
    text: TextPreparation | None = None
    characters: CharacterPreparation | None = None
    reader: Reader | None = None
    download: str | None = None

    @property
    def is_prepared(self) -> bool:
        return bool(self.preparation or self.text or self.characters)

    def variant_of(self, images: str) -> str:
        """Name in results of these images after conversion: `cifar10-jpeg-q75@16` is that copy averaged to 16x16."""
        assert self.preparation
        return images if self.preparation.average == 1 else f"{images}@{self.facts['input_shape'][-1]}"

    @property
    def published_variant(self) -> str | None:
        """The name in results of the data that papers use, of images the first source; None for data not converted."""
        if whole := self.text or self.characters:
            return whole.variant
        return self.variant_of(self.preparation.sources[0].variant) if self.preparation else None

    @cached_property
    def config(self) -> type[DataOptions]:
        """The pydantic model of a mapping that chooses this data set."""
        fields: dict[str, Any] = {"name": (Literal[self.name], Field(default=self.name, description=self.description))}
        fields |= self.reader.options() if self.reader else {}
        model = create_model(f"data.{self.name}", __base__=DataOptions, __doc__=self.description, **fields)
        model.component = self
        return model


class DataOptions(Options):
    """A chosen data set: its `name`, its options as attributes, and its declaration as `component`."""

    room: ClassVar[str] = "data"
    component: ClassVar[DataSet]

    @property
    def options(self) -> dict[str, Any]:
        """The options by name, defaults included: the arguments of the reader or of the data set's own code."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "name"}

    @property
    def facts(self) -> Mapping[str, Any]:
        declared, reader = self.component.facts, self.component.reader
        return reader.facts(self.options, declared) if reader else declared

    def checks(self) -> Iterator[Check]:
        if self.component.reader:
            yield from self.component.reader.conflicts(self.options, self.component.facts)

    if TYPE_CHECKING:

        def __getattr__(self, option: str) -> Any:
            """An option, for the type checker."""

    @classmethod
    def names(cls, package: Path = PACKAGE) -> list[str]:
        return data_set_names(package)

    @classmethod
    def named(cls, name: str, package: Path = PACKAGE) -> Any:
        return data_set(name, package).config


def data_set_names(package: Path = PACKAGE) -> list[str]:
    """The names of all data sets, sorted."""
    return list(_names(package.absolute()))


def data_set(name: str, package: Path = PACKAGE) -> DataSet:
    """The declaration of a data set. Raises ConfigError for an unknown name or a broken declaration."""
    return _data_set(name, package.absolute())


def prepared_names(package: Path = PACKAGE) -> list[str]:
    """The names of the data sets that are converted to a file of their own before training, sorted."""
    return [name for name in data_set_names(package) if data_set(name, package).is_prepared]


@cache
def _names(package: Path) -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in (package / "data").glob("*.yaml")))


@cache
def _data_set(name: str, package: Path) -> DataSet:
    known = data_set_names(package)
    if name not in known:
        raise ConfigError([f"data: {not_among(name, known)}"])
    file = package / "data" / f"{name}.yaml"
    node = load(file)
    declared = validated(_DataSetFile, node, package)
    raise_if_any(_missing_facts(declared.facts, node))
    preparations = declared.prepare, declared.prepare_text, declared.prepare_characters
    parts = declared.facts, file, *preparations, declared.reader, declared.download
    return DataSet(name, declared.description, *parts)


def _missing_facts(facts: Mapping[str, Any], node: Node) -> Iterator[Problem]:
    """What the length of an epoch and BLEU follow from: numbers of samples, and the language of translations."""
    for key in ("train_samples", "val_samples"):
        if type(facts.get(key)) is not int or facts[key] < 1:
            yield node.problem(f"found {show(facts.get(key))}, allowed: integer >= 1", "facts", key)
    language = facts.get("target_language")
    if facts.get("task") == "translation" and not (isinstance(language, str) and language):
        yield node.problem(f"found {show(language)}, allowed: a language such as de", "facts", "target_language")
