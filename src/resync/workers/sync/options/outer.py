"""Options of algorithms with an outer step after every round of local steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo, ValidatorFunctionWrapHandler
from pydantic_core import CoreSchema, core_schema

from resync.base.settings.base import Check, Count, NonNegativeNumber, PositiveInt, PositiveNumber, checks_failed, wrong
from resync.base.settings.errors import not_among
from resync.base.settings.options import TrainingShape, option_names
from resync.base.settings.units import LOCAL_STEPS, Epoch, InnerLR, LocalSteps
from resync.workers.formulas.periods import Constant, Period, Phases, rule_of
from resync.workers.sync.options.all_reduce import AllReduce
from resync.workers.sync.options.base import EngineNeeds, Look, SyncOptions, Traffic
from resync.workers.sync.options.rounds import RoundsOptions

OuterLr = Annotated[PositiveNumber, Field(description="outer learning rate")]
OuterMomentum = Annotated[float, Field(ge=0, lt=1, description="outer momentum")]


Compression = Annotated[
    Literal["bfloat16", "int8"] | None,
    Field(
        description="number format of the changes that workers send: bfloat16, or int8 with a scale for every 256, "
        "which all others receive and add in float32; null: float32, in an all-reduce",
    ),
]


def _share(compression: Compression) -> Fraction:
    """A message as a fraction of one in float32, which a last block that is not full exceeds by up to 4 bytes."""
    return {None: Fraction(1), "bfloat16": Fraction(1, 2), "int8": Fraction(1, 4) + Fraction(1, 256)}[compression]


class OuterOptions(RoundsOptions):
    """The options of an algorithm with an outer step of momentum after every round (resync.workers.sync.outer)."""

    lr: OuterLr = 0.7
    momentum: OuterMomentum = 0.9
    nesterov: bool = Field(default=True, description="Nesterov's form of the outer momentum; false: heavy ball")

    @property
    def effective_outer_lr(self) -> float:
        return self.lr / (1 - self.momentum)


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
        chosen = handler(value)
        if isinstance(chosen, SyncOptions) and not chosen.can_be_base:
            raise checks_failed("base", [(("name",), not_among(chosen.name, allowed))])
        return chosen


def bases() -> list[str]:
    """The names of the algorithms that can be a base algorithm."""
    return [name for name in option_names("sync") if SyncOptions.named(name).can_be_base]


class SlowMo(RoundsOptions):
    """Slow momentum on the workers' average around Local SGD, all-reduce, SGP or OSGP (Wang et al. 2020).

    Lookahead is a special case.

    Sends an all-reduce of the parameters with `average`, and of every moment with buffers="average", at the end of
    every round, beside what `base` sends.

        sync = resync.attach(model, optimizer, resync.SlowMo(period=12, base="sgp"))
    """

    look = Look("vermillion", "*", "long")
    name: Literal["slowmo"] = Field(default="slowmo", init=False)
    alpha: OuterLr = 1.0
    beta: OuterMomentum = 0.5
    average: bool = Field(default=True, description="average over the workers before the outer step")
    buffers: Literal["zero", "keep", "average"] = Field(
        default="keep", description="treatment of the inner optimizer's state before every round"
    )
    base: Annotated[SyncOptions | str, _Base()] = Field(
        default="none",
        description="algorithm that communicates in every step of a round: none, its name, or its options",
    )

    def checks(self) -> Iterator[Check]:
        if self.inner is None and not self.average:
            yield wrong("average", "false without a base algorithm", "true, or false with one")
        if getattr(self.inner, "biased", False):
            yield wrong(("base", "biased"), "true", "false, because an average gathers all shares")

    @property
    def inner(self) -> SyncOptions | None:
        return self.base if isinstance(self.base, SyncOptions) else None

    @property
    def needs(self) -> EngineNeeds:
        return self.inner.needs if self.inner else EngineNeeds()

    @property
    def effective_outer_lr(self) -> float:
        return self.alpha / (1 - self.beta)

    def vectors_per_round(self, state_vectors: int) -> int:
        """The parameters if they are averaged, and the optimizer's state if it is averaged."""
        return int(self.average) + (state_vectors if self.buffers == "average" else 0)


def Lookahead(*, period: Period | int, alpha: float = 0.5) -> SlowMo:
    """Lookahead (Zhang et al. 2019) between workers: SlowMo without momentum.

    After every round, the workers move the fraction `alpha` of the way from the last average to the new one.

    Sends an all-reduce of the parameters at the end of every round: 1/H of the volume of AllReduce.

    In a configuration: {name: slowmo, beta: 0.0, alpha: 0.5, period: {rule: constant, h: 5}}. In a loop of your own:

        sync = resync.attach(model, optimizer, resync.Lookahead(period=5))
        for x, y in loader:
            loss(model(x), y).backward(); optimizer.step(); optimizer.zero_grad()

    Args:
        period: local steps in a round, or a rule of resync.periods.
        alpha: fraction of the way, the outer learning rate.
    """
    return SlowMo(period=period, alpha=alpha, beta=0.0)


class DiLoCo(OuterOptions):
    """Local steps, then an outer step of Nesterov momentum on the workers' average (Douillard et al. 2023).

    With lr 1 and momentum 0 it is Local SGD; with one worker, SNOO.

    Sends an all-reduce of the parameters at the end of every round: 1/H of the volume of AllReduce.

        sync = resync.attach(model, optimizer, resync.DiLoCo(period=50), total_steps=T)
    """

    label = "DiLoCo"
    look = Look("vermillion", "D", "long")
    name: Literal["diloco"] = Field(default="diloco", init=False)
    compression: Compression = None

    @property
    def traffic(self) -> Traffic:
        return Traffic(every="round", all_reduce="all_gather" if self.compression else "default")

    def vectors_per_round(self, state_vectors: int) -> int | Fraction:
        return _share(self.compression) if self.compression else 1


class DiLoCoProgress(OuterOptions):
    """DiLoCo whose outer step follows the progress of a round, for rounds of unequal length as those of QSR.

    An ablation of resync's own, not a published method.

    Sends what DiLoCo sends.

        sync = resync.attach(model, optimizer, resync.DiLoCoProgress(period=50, reference=0.2))
    """

    label = "DiLoCo, corrected"
    name: Literal["diloco_progress"] = Field(default="diloco_progress", init=False)
    reference: InnerLR = Field(
        description="sum of the learning rates of the steps of a round whose outer step is that of DiLoCo, such as "
        "the smallest H times the largest learning rate"
    )


class SNOO(OuterOptions):
    """An outer step of Nesterov momentum around synchronous data-parallel training (Kallusky et al. 2025).

    With momentum 0 it is Lookahead.

    Sends an all-reduce of the gradients in every step, and nothing at the end of a round.

        sync = resync.attach(model, optimizer, resync.SNOO(period=28))
    """

    label = "SNOO"
    look = Look("orange", ">", "short")
    inner: ClassVar[AllReduce] = AllReduce()
    needs: ClassVar[EngineNeeds] = inner.needs
    name: Literal["snoo"] = Field(default="snoo", init=False)
    lr: OuterLr = 0.68
    momentum: OuterMomentum = 0.37

    def vectors_per_round(self, state_vectors: int) -> int:
        """Nothing: all workers take the same outer step."""
        return 0


class PALSGD(OuterOptions):
    """Pseudo-asynchronous Local SGD, DiLoCo whose workers are pulled to the last average (Naganuma et al. 2025).

    Sends an all-reduce of the gradients in every step before `start`, then what DiLoCo sends.

        sync = resync.attach(model, optimizer, resync.PALSGD(period=32, start=32))
    """

    label = "PALSGD"
    look = Look("sky", "P", "long")
    name: Literal["palsgd"] = Field(default="palsgd", init=False)
    lr: OuterLr = 0.1
    probability: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.2, description="probability that a step is a pull to the last average instead of a gradient step"
    )
    strength: NonNegativeNumber = Field(
        default=1.0, description="eta: on average, each step pulls by the fraction eta times the learning rate"
    )
    start: Epoch = Field(
        default=0.0, description="epoch of the first local step; before it, gradients are averaged in every step"
    )

    def checks(self) -> Iterator[Check]:
        """Require an H that does not change where steps with averaged gradients come first."""
        if self.start and not isinstance(self.period, Constant):
            found = f"{self.start:g} with the period rule {rule_of(self.period).rule}"
            yield wrong("start", found, "0, or a constant period")

    def checks_in(self, shape: TrainingShape) -> Iterator[Check]:
        yield from super().checks_in(shape)
        if self.start >= shape.epochs:
            yield wrong("start", f"{self.start:g}", f"less than epochs = {shape.epochs}")

    @property
    def rule(self) -> Period:
        """The rule for the number of local steps per round, which is 1 while gradients are averaged."""
        if self.start and isinstance(self.period, Constant):
            return Phases(phases=((0, 1), (self.start, self.period.h)))
        return super().rule

    @property
    def needs(self) -> EngineNeeds:
        # Gradients are averaged before the first local step only; a pulled worker takes no optimizer step.
        return EngineNeeds(average_gradients=self.start > 0, separate_optimizer_steps=True)


class StreamingDiLoCo(SyncOptions):
    """DiLoCo in fragments of the parameters, which take turns and travel during local steps (Douillard et al. 2025).

    Sends an all-reduce of one of `fragments` parts of the parameters every period / fragments steps; with
    `compression`, a message of it to all others. The outer rate is the paper's, which does not print its momentum.

        sync = resync.attach(model, optimizer, resync.StreamingDiLoCo(period=20, fragments=2, delay=2))
    """

    label = "Streaming DiLoCo"
    look = Look("teal", "v", "short")
    name: Literal["streaming_diloco"] = Field(default="streaming_diloco", init=False)
    period: LocalSteps = Field(
        description="local steps between two averages of a fragment, H; a multiple of fragments, one of which is "
        "averaged at the end of every round of period / fragments steps"
    )
    fragments: PositiveInt = Field(description="number of fragments, equal parts of the parameters")
    delay: Annotated[Count, LOCAL_STEPS] = Field(
        default=0, description="local steps that are computed while a fragment travels; less than period / fragments"
    )
    mixing: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0,
        description="weight of a worker's own parameters when it takes over a fragment; 0: what it computed during "
        "the delay is lost; 1: it never takes over anything",
    )
    first: Literal["period"] | None = Field(
        default=None,
        description="period: no fragment is averaged before it has made `period` steps, as in the paper; null: the "
        "first one is after period / fragments steps, as in torchft",
    )
    lr: OuterLr = 0.4
    momentum: OuterMomentum = 0.9
    compression: Compression = None

    def checks(self) -> Iterator[Check]:
        if self.period % self.fragments:
            yield wrong("period", self.period, f"a multiple of fragments = {self.fragments}")
        elif self.delay >= self.period // self.fragments:
            yield wrong("delay", self.delay, f"less than period / fragments = {self.period // self.fragments}")

    def fitted(self, reduced: dict[str, Any], shape: TrainingShape) -> dict[str, Any]:
        """Whole rounds again, and a shorter delay where it must be."""
        steps = ceil(reduced["period"] / self.fragments)
        return {"period": steps * self.fragments} | ({"delay": min(reduced["delay"], steps - 1)} if self.delay else {})

    @property
    def rule(self) -> Period:
        return Constant(h=self.period // self.fragments)

    @property
    def effective_outer_lr(self) -> float:
        return self.lr / (1 - self.momentum)

    @property
    def traffic(self) -> Traffic:
        way: Literal["all_gather", "default"] = "all_gather" if self.compression else "default"
        return Traffic(every="round", overlapped=self.delay, all_reduce=way)

    @property
    def rounds_without(self) -> int:
        """The number of rounds before the first average."""
        return self.fragments - 1 if self.first else 0

    def vectors_per_round(self, state_vectors: int) -> Fraction:
        return _share(self.compression) / self.fragments

    def exchanged(self, lengths: Sequence[int], state_vectors: int) -> Iterator[tuple[int, int | Fraction]]:
        """Nothing at the end of the rounds before the first average."""
        vectors = self.vectors_per_round(state_vectors)
        return ((steps, vectors if number >= self.rounds_without else 0) for number, steps in enumerate(lengths))


class NoLoCo(RoundsOptions):
    """An outer step on the averages of random pairs of workers in place of all (Kolehmainen et al. 2025).

    Sends two vectors of the length of the parameters to one worker at the end of every round.

        sync = resync.attach(model, optimizer, resync.NoLoCo(period=10))
    """

    label = "NoLoCo"
    look = Look("olive", "s", "short")
    name: Literal["noloco"] = Field(default="noloco", init=False)
    lr: OuterLr = 0.7
    momentum: OuterMomentum = 0.5
    pull: Annotated[float, Field(ge=0)] = Field(
        default=0.7, description="weight with which a worker's anchor is pulled to the mean of the anchors of its pair"
    )

    @property
    def traffic(self) -> Traffic:
        return Traffic(every="round", topology="random_matching")

    def vectors_per_round(self, state_vectors: int) -> int:
        """The anchor and the change of the round."""
        return 2
