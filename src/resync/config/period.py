"""Period rules, how many local steps H a round has, and what else changes at epochs of an algorithm."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, Strict, TypeAdapter, ValidationError, WithJsonSchema

from resync.settings.base import (
    Check,
    Count,
    Items,
    NonNegativeNumber,
    PositiveInt,
    PositiveNumber,
    Settings,
    ascending,
    checks_failed,
)
from resync.settings.errors import show


class ConstantPeriod(Settings):
    """H is the same in every round."""

    rule: Literal["constant"]
    h: PositiveInt = Field(description="local steps in a round")


class PowerPeriod(Settings):
    """H = max(h_base, floor((alpha / lr)^power)) of the round's first lr (Gu et al. 2024)."""

    rule: Literal["power"]
    alpha: PositiveNumber = Field(description="growth coefficient, in the unit of the learning rate")
    power: PositiveNumber = Field(default=2.0, description="2 is QSR, 1 the linear rule, 3 the cubic rule")
    h_base: PositiveInt = Field(default=1, description="smallest number of local steps in a round")
    h_warmup: PositiveInt | None = Field(
        default=None,
        description="H of the rounds that start in warm-up; null: h_base",
    )
    h_max: PositiveInt | None = Field(default=None, description="largest number of local steps; null: no limit")

    def checks(self) -> Iterator[Check]:
        """The limits are in order."""
        if self.h_max is not None and self.h_max < self.h_base:
            yield ("h_max",), f"found {self.h_max}, allowed: null or at least h_base = {self.h_base}"


class PhasesPeriod(Settings):
    """H changes at given epochs: post-local SGD, and SWAP, whose last phase averages at the end of training only."""

    rule: Literal["phases"]
    phases: Items[Annotated[tuple[NonNegativeNumber, PositiveInt | Literal["end"]], Strict(False)]] = Field(
        min_length=1,
        description="[first epoch, H] pairs from epoch 0 on; H is a number, or end: average at the end only",
    )

    def checks(self) -> Iterator[Check]:
        """Phases follow each other, and only the last has no H."""
        yield from phase_checks(("phases",), [epoch for epoch, _ in self.phases])
        for index, (_, h) in enumerate(self.phases[:-1]):
            if h == "end":
                yield ("phases", index, 1), "found end, allowed: integer >= 1, only the last phase goes to the end"


Period = Annotated[ConstantPeriod | PowerPeriod | PhasesPeriod, Field(discriminator="rule")]
_PeerPhases = TypeAdapter(Items[Annotated[tuple[NonNegativeNumber, Count], Strict(False)]])


def _peers(value: object) -> int | tuple[tuple[float, int], ...]:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    try:
        return _PeerPhases.validate_python(value, strict=False)
    except ValidationError:
        allowed = "integer >= 1, or a list of [first epoch, peers >= 0]"
        raise checks_failed("peers", [((), f"found {show(value)}, allowed: {allowed}")]) from None


Peers = Annotated[
    Any,
    PlainValidator(_peers),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, _PeerPhases.json_schema()]}),
]
"""A number of peers, or [first epoch, peers] pairs; 0 peers is an average over all workers."""


def phase_checks(key: tuple[str, ...], epochs: Sequence[float]) -> Iterator[Check]:
    """Phases start at epoch 0 and follow each other."""
    if epochs and epochs[0] != 0:
        yield (*key, 0, 0), f"found {epochs[0]:g}, allowed: 0, the first phase starts with the training"
    yield from ascending(key, epochs)
