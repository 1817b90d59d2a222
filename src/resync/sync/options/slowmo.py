"""Options of slow momentum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo, ValidatorFunctionWrapHandler
from pydantic_core import CoreSchema, core_schema

from resync.config.parts import SyncOptions
from resync.settings.base import Check, checks_failed
from resync.settings.errors import not_among
from resync.settings.options import option_names
from resync.sync.options._outer import OuterLr, OuterMomentum
from resync.sync.options._rounds import RoundsOptions


class _Base:
    """`none`, or an algorithm that can be a base algorithm; its name alone stands for its default options."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_wrap_validator_function(
            self._validate, handler.generate_schema(SyncOptions), serialization=core_schema.simple_ser_schema("any")
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        options = {"type": "object", "x-component": "sync", "x-only": "can_be_base"}
        return {"anyOf": [{"enum": ["none", *bases()]}, options]}

    @staticmethod
    def _validate(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        if value == "none":
            return value
        allowed = ["none", *bases()]
        if isinstance(value, str):
            if value not in allowed:
                raise checks_failed("base", [((), not_among(value, allowed))])
            value = {"name": value}
        found = handler(value)
        if isinstance(found, SyncOptions) and not found.can_be_base:
            raise checks_failed("base", [(("name",), not_among(found.name, allowed))])
        return found


def bases() -> list[str]:
    """The names of the algorithms that can be a base algorithm."""
    return [name for name in option_names("sync") if SyncOptions.named(name).can_be_base]


class SlowMo(RoundsOptions):
    """Slow momentum on the workers' average around Local SGD, all-reduce, SGP or OSGP (Wang et al. 2020).

    DiLoCo and Lookahead are special cases.
    """

    name: Literal["slowmo"] = Field(default="slowmo", init=False)
    alpha: OuterLr = 1.0
    beta: OuterMomentum = 0.5
    nesterov: bool = Field(default=False, description="Nesterov form of the outer momentum (DiLoCo)")
    scale_by_lr: bool = Field(
        default=True,
        description="divide the change of a round by the learning rate of its last step before it enters the outer "
        "momentum, and multiply by it after; DiLoCo does not",
    )
    average: bool = Field(default=True, description="average over the workers before the outer step")
    buffers: Literal["zero", "keep", "average"] = Field(
        default="keep", description="treatment of the inner optimizer's state before every round"
    )
    base: Annotated[SyncOptions | str, _Base()] = Field(
        default="none",
        description="algorithm that communicates in every step of a round: none, its name, or its options",
    )

    def checks(self) -> Iterator[Check]:
        """Require an average or a base algorithm."""
        if self.inner is None and not self.average:
            yield ("average",), "found false without a base algorithm, allowed: true, or false with one"
        if getattr(self.inner, "biased", False):
            yield ("base", "biased"), "found true, allowed: false, because an average gathers all shares"

    @property
    def inner(self) -> SyncOptions | None:
        """The options of the base algorithm."""
        return self.base if isinstance(self.base, SyncOptions) else None

    @property
    def averages_gradients(self) -> bool:
        """Whether the base algorithm does."""
        return self.inner is not None and self.inner.averages_gradients

    @property
    def engine_may_average(self) -> bool:
        """Whether the base algorithm lets an engine average its gradients."""
        return self.inner is not None and self.inner.engine_may_average

    def vectors_per_round(self, state_vectors: int) -> int:
        """The parameters if they are averaged, and the optimizer's state if it is averaged."""
        return int(self.average) + (state_vectors if self.buffers == "average" else 0)
