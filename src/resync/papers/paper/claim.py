"""A claim: a statement of the paper, or one of our own, that can be tested by comparing series over seeds."""

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel

from resync.base.settings.base import Check, Count, Id, Items, PositiveInt, PositiveNumber, Settings, Text
from resync.runs.metrics.registry import EVALUATED, EXACT, METRICS, ComparedMetric
from resync.runs.run.run import Scale

TEST_RULE = "t tests, paired by seed or start with the same kind of run, Welch's else; ranks if a training diverged; 2"
"""The rule by which claims are tested, with its version: a claim is not fixed before its rule."""


LEAST_SEEDS = 2
"""Values that a standard deviation needs."""


def least_seeds(scale: str) -> int:
    """Seeds of each series that a test over seeds needs: with fewer, it would rest on normality alone.

    Smoke scale tests the machinery, for which a standard deviation of two values does.
    """
    return LEAST_SEEDS if scale == "smoke" else 5


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
    """A bound on what a series reached at the epoch at which a claim tests it: on the mean over its seeds."""

    metric: ComparedMetric = Field(description="what is bounded; the dose counts the steps whose gradients have noise")
    series: SeriesName | None = Field(
        default=None,
        description="series that must keep it, or `experiment/series`, of another experiment at its end; null: every "
        "one that a claim compares",
    )
    least: float | None = Field(default=None, description="smallest value; null: no bound")
    most: float | None = Field(default=None, description="largest value; null: no bound")
    published: float = Field(description="what the paper's own training reached, which keeps the bound")
    source: Text = Field(description="where the paper says so")

    def checks(self) -> Iterator[Check]:
        """Require a bound that does not exclude the paper's own training."""
        if self.least is None and self.most is None:
            yield (), "found neither least nor most, allowed: one of them, or both"
        if not self.keeps(self.published):
            yield ("published",), f"found {self.published:g}, allowed: {self.allowed}, or the paper would be outside"

    def keeps(self, value: float) -> bool:
        """Whether a value lies within the bound."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    @property
    def allowed(self) -> str:
        """`at least 1 and at most 2`."""
        bounds = (("least", self.least), ("most", self.most))
        return " and ".join(f"at {word} {value:g}" for word, value in bounds if value is not None)


class Regime(Settings):
    """What trainings at a reduced scale must be for claims of the paper on them to be tested; the audit measures it.

    It is one for all claims on an experiment, so that none is spared a verdict that another one gets.
    """

    bounds: Items[Bound] = Field(default=(), description="what its trainings must reach")
    rates: Literal["tuned", "shared", "compared"] = Field(
        description="tuned: both sides have the best rate of grids of the same rates, not at their edge, by the tested "
        "metric and on other images than the claim uses (`tuned`); shared: one peak rate for all, as the paper has it; "
        "compared: the rate is what differs"
    )


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
    control: Id | None = Field(
        default=None,
        description="positive control: a claim of the paper that must agree, so that an effect can be seen in this "
        "setting; a claim that nothing is lost needs one at a reduced scale",
    )
    published_effect: float | None = Field(
        default=None,
        description="effect that the paper has, in the metric's unit and positive if `better` is better: it disagrees "
        "only where tests exclude a third of it; null: that of the published values of the two series",
    )
    seeds: dict[Scale, PositiveInt] = Field(
        default={},
        description="stopping rule: the number of seeds, or starts, at which it is tested, once; it stays open at "
        "another. Omitted: all that the experiment declares",
    )
    chosen_on: Items[Count] = Field(
        default=(), description="seeds by whose results the claim or its bounds were chosen, which do not count"
    )
    continues: Id | None = Field(
        default=None,
        description="the claim that it asks again of further seeds, after a look at the first ones: once, and at half "
        "its level",
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
            for key in ("confidence", "expected", "control", "published_effect", "seeds", "continues"):
                if key in self.model_fields_set:
                    yield (key,), "has no effect on an exact number, allowed: for a test over seeds"
        for key in ("expected", "seeds"):
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


_TEST = ("experiment", "better", "than", "order", "curves", "metric", "at_epoch", "direction", "at_least", "confidence",
         "control", "published_effect", "seeds", "chosen_on", "continues")  # fmt: skip
FIXED = "fixed.json"
"""The file beside `claims.yaml` that says in which commit each claim was fixed."""
Fixed = dict[str, dict[str, tuple[str, str, str]]]
"""By claim and part, its fingerprint, the commit from which on it has this one, and its time.

Parts are `test`, what is tested; `rule`, how (`TEST_RULE`); `regime`, that of its experiment; and `pilots`, by which
commit the experiment had pilot seeds, which may have shown the sign of the effect.
"""


def fingerprint(entry: Mapping[str, Any], *keys: str) -> str:
    """12 hex digits of some keys of an entry as it stands in its file; by default of what a claim tests."""
    kept = {key: entry[key] for key in keys or _TEST if key in entry}
    return sha256(_canonical(kept).encode()).hexdigest()[:12]


def _canonical(value: Any) -> str:
    """JSON in which 1 is 1.0."""
    return json.dumps(json.loads(json.dumps(value), parse_int=float), sort_keys=True)


class ClaimsFile(RootModel[Items[Claim]]):
    """`claims.yaml`: the claims of the paper."""
