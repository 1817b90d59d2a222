"""The base of every configuration model, and the types that models share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from resync.base.errors import UserError
from resync.base.settings.describe import in_one_line
from resync.base.settings.errors import KeyPath

PACKAGE = Path(__file__).parents[2]
"""The folder in whose rooms components are looked for."""

_ID = r"^[a-z0-9][a-z0-9_]*$"
Id = Annotated[str, Field(pattern=_ID)]
Text = Annotated[str, Field(min_length=1)]
PositiveInt = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
PositiveNumber = Annotated[float, Field(gt=0)]
NonNegativeNumber = Annotated[float, Field(ge=0)]

Check = tuple[KeyPath, str]
"""A finding of a cross check: the key path inside its model, and the message."""

_Item = TypeVar("_Item")
Items = Annotated[tuple[_Item, ...], Strict(False)]
"""A YAML list, kept as a tuple because models are frozen."""
Several = Annotated[Sequence[_Item], AfterValidator(tuple)]
"""The same for what is also given in Python, as a list or a tuple."""


@dataclass
class Reading:
    """The context in which one file or one merged run is validated; pydantic hands it to every validator.

    `package` is the folder of the components. `partial` means that other layers will complete this one: missing
    keys and cross checks are left to the merged whole. `readers` records which model read which mapping, by
    identity, so that an error can say what the model would have allowed there.
    """

    package: Path = PACKAGE
    partial: bool = False
    readers: dict[int, type[Settings]] = field(default_factory=dict)


def is_id(name: str) -> bool:
    """Whether `name` can be the name of a paper, experiment, series or item."""
    return re.fullmatch(_ID, name) is not None


def reading_of(info: ValidationInfo) -> Reading:
    """The Reading in which a validator runs; a default one when a model is built directly."""
    return info.context if isinstance(info.context, Reading) else Reading()


class Settings(BaseModel):
    """A frozen, strict model; a subclass states in `checks` what must hold between its keys.

    Built in Python, with keyword arguments, it raises ValueError with a one-line message if a value is not allowed.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True, protected_namespaces=()
    )

    layered: ClassVar[bool] = True
    """Whether another layer may complete a partial mapping of this model."""

    if not TYPE_CHECKING:

        def __init__(self, /, **values):
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise UserError(in_one_line(error, type(self))) from None

        # Validation of files then builds models without calling it, as it does with pydantic's own.
        __init__.__pydantic_base_init__ = True

    def checks(self) -> Iterator[Check]:
        """Yield contradictions between keys that are valid one by one."""
        return iter(())

    @model_validator(mode="before")
    @classmethod
    def _note_reader(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, dict):
            reading_of(info).readers[id(data)] = cls
        return data

    @model_validator(mode="after")
    def _run_checks(self, info: ValidationInfo) -> Settings:
        failed = [] if reading_of(info).partial else list(self.checks())
        if failed:
            raise checks_failed(type(self).__name__, failed)
        return self


def wrong(key: str | KeyPath, found: object, allowed: object) -> Check:
    """The finding that the value at `key` is `found`."""
    return (key,) if isinstance(key, str) else key, f"found {found}, allowed: {allowed}"


def check_ascending(key: KeyPath, epochs: Iterable[float]) -> Iterator[Check]:
    """Yield the [epoch, value] pairs at `key` whose epoch is not later than the one before."""
    for index, (before, epoch) in enumerate(pairwise(epochs), start=1):
        if epoch <= before:
            yield wrong((*key, index, 0), f"{epoch:g}", f"later than {before:g}, the one before")


def check_unique(ids: Iterable[tuple[KeyPath, str]]) -> Iterator[Check]:
    """Yield the names, each with its place, that an earlier one has too."""
    seen: set[str] = set()
    for key, name in ids:
        if name in seen:
            yield wrong(key, f"{name!r} again", "a name of its own")
        seen.add(name)


def checks_failed(title: str, checks: Iterable[Check]) -> ValidationError:
    """An error with one line per check, whose text is already what the user should read."""
    return ValidationError.from_exception_data(
        title,
        [
            InitErrorDetails(type=PydanticCustomError("check", "{message}", {"message": message}), loc=path, input=None)
            for path, message in checks
        ],
    )
