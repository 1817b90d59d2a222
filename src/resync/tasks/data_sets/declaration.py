"""Data sets: found by name, each declared by `data/<name>.yaml`.

Reading a declaration imports neither torch nor the code of the data set, so that a workflow manager or a cluster job
can validate a configuration in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, create_model

from resync.base.errors import UserError
from resync.base.settings.base import PACKAGE, Check, Settings, Text, wrong
from resync.base.settings.errors import ConfigError, not_among, show
from resync.base.settings.loader import load
from resync.base.settings.options import Options
from resync.base.settings.validation import validated
from resync.tasks.data_sets.preparation import CharacterPreparation, Preparation, TextPreparation
from resync.tasks.data_sets.readers import Reader


class DataSet(Settings):
    """The declaration of a data set, the content of `data/<name>.yaml`.

    `download` is a command for a shell that puts the originals below `$RESYNC_DATA`, if there is one.
    """

    description: Text
    download: Text | None = None
    facts: dict[str, Any] = Field(default={})
    reader: Reader | None = None
    preparation: Preparation | None = Field(default=None, alias="prepare")
    text: TextPreparation | None = Field(default=None, alias="prepare_text")
    characters: CharacterPreparation | None = Field(default=None, alias="prepare_characters")
    _file: Path = PrivateAttr()

    def checks(self) -> Iterator[Check]:
        """Require what the length of an epoch and BLEU follow from, and a reader for what is prepared."""
        for key in ("train_samples", "val_samples"):
            if type(self.facts.get(key)) is not int or self.facts[key] < 1:
                yield wrong(("facts", key), show(self.facts.get(key)), "integer >= 1")
        language = self.facts.get("target_language")
        if self.facts.get("task") == "translation" and not (isinstance(language, str) and language):
            yield wrong(("facts", "target_language"), show(language), "a language such as de")
        if self.reader:
            yield from self.reader.problems(self.preparation or self.text or self.characters, self.facts)

    @property
    def name(self) -> str:
        return self._file.stem

    @property
    def file(self) -> Path:
        return self._file

    def error(self, message: object) -> UserError:
        return UserError(f"data {self.name}: {message}")

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


@cache
def data_set_names(package: Path = PACKAGE) -> list[str]:
    """The names of all data sets, sorted."""
    return sorted(file.stem for file in (package / "tasks/data").glob("*.yaml"))


@cache
def data_set(name: str, package: Path = PACKAGE) -> DataSet:
    """The declaration of a data set. Raises ConfigError for an unknown name or a broken declaration."""
    known = data_set_names(package)
    if name not in known:
        raise ConfigError([f"data: {not_among(name, known)}"])
    file = package / "tasks/data" / f"{name}.yaml"
    declared = validated(DataSet, load(file), package)
    declared._file = file
    return declared


def prepared_names(package: Path = PACKAGE) -> list[str]:
    """The names of the data sets that are converted to a file of their own before training, sorted."""
    return [name for name in data_set_names(package) if data_set(name, package).is_prepared]
