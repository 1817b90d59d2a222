"""A claim: a statement of the paper, or one of our own, that can be tested by comparing series over seeds."""

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel

from resync.metrics.registry import EVALUATED, EXACT, METRICS, ComparedMetric
from resync.run.run import Scale
from resync.settings.base import Check, Id, Items, PositiveInt, PositiveNumber, Settings, Text

LEAST_SEEDS = 2
"""Seeds of each series that a test over seeds needs: a standard deviation needs two values."""

REDUCED = ("smoke", "mini")
"""The scales at which something else is trained than what the paper trains."""

SeriesName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*(/[a-z0-9][a-z0-9_]*)?$")]


class CurveTest(Settings):
    """A bound on how the steps that searches find depend on the number of workers n, or on the series."""

    quantity: Literal["slope", "ratio"] = Field(
        description="slope: of log steps against log n, by least squares over all n; ratio: of the steps of two series"
    )
    series: SeriesName = Field(description="series of the experiment, or `experiment/series`")
    than: SeriesName | None = Field(default=None, description="series by which a ratio divides; null: the same one")
    workers: Items[PositiveInt] | None = Field(default=None, description="numbers of workers; null: all of the series")
    than_workers: Items[PositiveInt] | None = Field(
        default=None, description="numbers of workers of the series by which a ratio divides; null: the same ones"
    )
    of: Literal["seeds", "means", "median"] = Field(
        default="seeds",
        description="what must lie within the bounds: the quantity of every seed; the ratio of the means over the "
        "seeds; or the median over seeds and numbers of workers",
    )
    least: float | None = Field(default=None, description="smallest value; null: no bound")
    most: float | None = Field(default=None, description="largest value; null: no bound")

    def checks(self) -> Iterator[Check]:
        """Require a bound, and what its quantity needs."""
        if self.least is None and self.most is None:
            yield (), "found neither least nor most, allowed: one of them, or both"
        if self.quantity == "slope" and (self.of != "seeds" or self.than or self.workers or self.than_workers):
            yield ("quantity",), "found a slope of a part, allowed: of every seed over all numbers of workers"
        if self.quantity == "ratio" and not (self.than or self.than_workers):
            yield ("than",), "found nothing to divide by, allowed: than, or than_workers"


class Bound(Settings):
    """A bound on what a series reached: on the mean over its seeds, or on a number of its configuration."""

    metric: ComparedMetric = Field(description="what is bounded: the value at the end of the runs, or at `at_epoch`")
    series: SeriesName = Field(description="series of the claim's experiment, or `experiment/series`")
    at_epoch: PositiveNumber | None = Field(default=None, description="epoch of the evaluation; null: the end")
    least: float | None = Field(default=None, description="smallest value; null: no bound")
    most: float | None = Field(default=None, description="largest value; null: no bound")

    def checks(self) -> Iterator[Check]:
        """Require a bound."""
        if self.least is None and self.most is None:
            yield (), "found neither least nor most, allowed: one of them, or both"


class Regime(Settings):
    """What must be true of the trainings of a scale for a claim to be able to hold there; the audit checks it."""

    outside: Text | None = Field(default=None, description="why the claim cannot hold or fail there; alone")
    inside: Text | None = Field(default=None, description="why it can, whatever the trainings reach")
    values: Items[Bound] = Field(default=(), description="what its trainings must reach")
    tuned: bool = Field(
        default=False,
        description="whether every series must have the settings of the best one of its experiment's "
        "grid (`tuned` there)",
    )
    control: Id | None = Field(
        default=None, description="positive control: a claim of the paper at this scale that must hold, so that an "
        "effect can be seen in this setting",
    )  # fmt: skip

    def checks(self) -> Iterator[Check]:
        """Require a reason or a condition, and nothing beside `outside`."""
        given = [name for name in type(self).model_fields if getattr(self, name)]
        if not given:
            yield (), "found no condition, allowed: outside alone, or inside, values, tuned and control"
        elif self.outside and len(given) > 1:
            yield ("outside",), f"found {given[1]} beside it, allowed: outside alone"


class Claim(Settings):
    """One claim: a series is better than another, or several series are in an order, each by at least `at_least`."""

    id: Id = Field(description="name of the claim within its paper")
    statement: Text = Field(description="the claim in one sentence")
    experiment: Id = Field(
        description="experiment whose series are compared; one of another experiment is `experiment/series`"
    )
    better: SeriesName | None = Field(default=None, description="series that should be better; together with than")
    than: SeriesName | None = Field(default=None, description="series that it should be better than")
    order: Items[SeriesName] | None = Field(
        default=None,
        min_length=3,
        description="instead of better and than: series from the best to the worst, each better than the next",
    )
    curves: Items[CurveTest] | None = Field(
        default=None,
        min_length=1,
        description="instead of better and than, for test curves: bounds that must all hold; `direction` and "
        "`at_least` have no effect",
    )
    item: Id | None = Field(default=None, description="figure or table that shows it; null: stated elsewhere")
    metric: ComparedMetric = Field(description="what is compared: the value at the end of a run, or at `at_epoch`")
    at_epoch: PositiveNumber | None = Field(
        default=None, description="epoch whose evaluation is compared; null: the end of the run"
    )
    direction: Literal["higher", "lower"] = Field(description="which values of the metric are better")
    at_least: float = Field(
        description="smallest effect that supports the claim, in the metric's unit: by how much the better series "
        "must be better; negative: by how much it may be worse and still count as equal"
    )
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(
        default=0.95,
        description="level of the one-sided tests over seeds: their error rate is 1 - confidence",
    )
    scales: Items[Scale] = Field(min_length=1, description="scales at which the claim is meaningful")
    regime: dict[Scale, Regime] = Field(
        default={},
        description="by scale, what must be true of the trainings for the claim to be able to hold; scale paper has "
        "the published settings and needs none",
    )
    headline: bool = Field(
        default=False, description="whether it is one of the few claims of the abstract, or tests one in its regime"
    )
    expected: dict[Scale, float] = Field(
        default={},
        description="effect that is expected at a scale, in the metric's unit and positive if `better` is better, for "
        "`resync power`; declared before the seeds that decide the claim are run",
    )
    status: Literal["verified", "secondary", "derived", "unverified", "ours"] = Field(
        description="how certain it is that the paper says so, with the same words as for published values; derived: "
        "it follows from what the paper says, or is the same at small scale; ours: the paper does not say it, it is a "
        "hypothesis of this project or was declared after seeing results, and does not count in the score"
    )
    source: Text = Field(description="where the paper says so, or why we ask")
    hardware: Text | None = Field(
        default=None,
        description="for times: the machines and network that the claim is about, which results do not record; on "
        "others it may fail, so that it is then inconclusive",
    )
    undecidable: Text | None = Field(
        default=None, description="why no verdict is possible as the claim is declared; null: one is"
    )

    @property
    def unit(self) -> str:
        """Unit of the metric and of `at_least`."""
        return METRICS[self.metric].unit

    @property
    def is_exact(self) -> bool:
        """Whether its numbers follow from the configuration, without a run."""
        return self.metric in EXACT

    @property
    def is_tested(self) -> bool:
        """Whether it is tested over seeds."""
        return not (self.is_exact or self.curves)

    @property
    def is_ours(self) -> bool:
        """Whether it is a statement of this project and of no paper."""
        return self.status == "ours"

    @property
    def series(self) -> tuple[str, ...]:
        """The series from the best to the worst, or those of the bounds."""
        if self.curves:
            return tuple(dict.fromkeys(name for test in self.curves for name in (test.series, test.than) if name))
        return self.order or tuple(series for series in (self.better, self.than) if series)

    def where(self, series: str) -> tuple[str, str]:
        """The experiment of one of the claim's series, and the series' name there."""
        experiment, _, name = series.rpartition("/")
        return experiment or self.experiment, name

    @property
    def compared(self) -> tuple[tuple[str, str], ...]:
        """The (experiment, series) pairs of all of its series."""
        return tuple(map(self.where, self.series))

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The comparisons as (better, worse): a single one, or one per step of the order; none of bounds."""
        return () if self.curves else tuple(pairwise(self.series))

    def checks(self) -> Iterator[Check]:
        """Require two series or an order, without repetition, and a test that fits the metric."""
        given = {key for key in ("better", "than", "order", "curves") if getattr(self, key) is not None}
        if given not in ({"better", "than"}, {"order"}, {"curves"}):
            yield (), f"found {' and '.join(sorted(given)) or 'neither'}, allowed: better and than, or order, or curves"
        elif not self.curves and len({self.where(series) for series in self.series}) < len(self.series):
            key = "order" if self.order else "than"
            yield (key,), f"found a series twice, allowed: different series of {', '.join(dict.fromkeys(self.series))}"
        if self.is_exact:
            for key in ("confidence", "expected", "regime"):
                if key in self.model_fields_set:
                    yield (key,), "has no effect on an exact number, allowed: for a test over seeds"
        elif self.curves is None and not self.is_ours:
            for scale in [scale for scale in self.scales if scale in REDUCED and scale not in self.regime]:
                yield ("regime",), f"found none at scale {scale}, allowed: such as {{{scale}: {{outside: WHY}}}}"
        for key in ("expected", "regime"):
            if elsewhere := [scale for scale in getattr(self, key) if scale not in self.scales]:
                yield (key,), f"found {elsewhere[0]}, allowed: scales of the claim, {', '.join(self.scales)}"
        if self.hardware is not None and METRICS[self.metric].depends_on != "hardware":
            yield ("hardware",), f"has no effect on {self.metric}, allowed: for times"
        if self.is_ours:
            for key in ("item", "headline"):
                if getattr(self, key):
                    yield (key,), "has no effect with status ours, allowed: null"
        if self.at_epoch is not None and self.metric not in EVALUATED:
            yield ("at_epoch",), f"found for {self.metric}, allowed: for {', '.join(EVALUATED)}"


_PARTS = {
    "test": (
        "experiment", "better", "than", "order", "curves", "metric", "at_epoch", "direction", "at_least", "confidence",
    ),
    "regime": ("regime",),
}  # fmt: skip
FIXED = "fixed.json"
"""The file beside `claims.yaml` that says in which commit each claim was fixed."""
Fixed = dict[str, dict[str, tuple[str, str, str]]]
"""By claim and part (`test`, `regime`): its fingerprint, the commit from which on it has this one, and its time."""


def fingerprints(entry: Mapping[str, Any]) -> dict[str, str]:
    """12 hex digits of what is tested, and of the regime, of a claim as it stands in its file."""
    return {part: sha256(_canonical({key: entry[key] for key in keys if key in entry}).encode()).hexdigest()[:12]
            for part, keys in _PARTS.items()}  # fmt: skip


def _canonical(value: Any) -> str:
    """JSON in which 1 is 1.0."""
    return json.dumps(json.loads(json.dumps(value), parse_int=float), sort_keys=True)


class ClaimsFile(RootModel[Items[Claim]]):
    """`claims.yaml`: the claims of the paper."""
