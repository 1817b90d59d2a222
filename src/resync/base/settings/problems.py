"""Reading and validating files without stopping at the first error."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from resync.base.settings.errors import ConfigError, Problem
from resync.base.settings.loader import load
from resync.base.settings.tree import Node
from resync.base.settings.validation import validate

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass
class Collector:
    """The problems of a set of files: those of whole files in `lines`, those at places in files in `problems`."""

    package: Path
    lines: list[str] = field(default_factory=list)
    problems: set[Problem] = field(default_factory=set)

    def load(self, file: Path) -> Node | None:
        """The file's content; None if it has errors, which are noted."""
        try:
            return load(file)
        except ConfigError as error:
            self.lines += error.lines
            return None

    def validate(self, model: type[_Model], node: Node, *, partial: bool = False) -> _Model | None:
        """`model` built from `node`, or from a `partial` layer; None if it has problems, which are noted."""
        built, problems = self.validated(model, node, partial=partial)
        self.problems.update(problems)
        return built

    def validated(
        self, model: type[_Model], node: Node, *, partial: bool = False
    ) -> tuple[_Model | None, list[Problem]]:
        try:
            return validate(model, node, self.package, partial=partial)
        except ConfigError as error:  # the declaration of a component is broken
            self.lines += error.lines
            return None, []

    def note(self, problems: Iterable[Problem]) -> None:
        self.problems.update(problems)

    @property
    def found_any(self) -> bool:
        return bool(self.lines or self.problems)

    def raise_if_any(self) -> None:
        if self.found_any:
            raise ConfigError([*self.lines, *map(str, sorted(self.problems))])
