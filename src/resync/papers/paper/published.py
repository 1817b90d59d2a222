"""The numbers that a paper published: what each one measures, and how certain it is."""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Literal

from pydantic import Field, RootModel

from resync.base.settings.base import (
    Check,
    Count,
    Id,
    Items,
    NonNegativeNumber,
    PositiveInt,
    PositiveNumber,
    Settings,
    Text,
)
from resync.base.settings.errors import show
from resync.runs.metrics.registry import EXACT, METRICS, ComparedMetric
from resync.runs.run.run import Scale
from resync.workers.formulas.clock import LinkName

CERTAINTY = ("verified", "secondary", "derived", "measured", "unverified", "missing")
"""The status words of published values, the most certain first."""
_quantity = attrgetter(
    "experiment", "series", "of", "metric", "scale", "than", "comparison", "relative_to", "bound", "seed", "at_workers",
    "at_epoch",
)  # fmt: skip
_BESIDE_RUNS = (
    "item", "than", "relative_to", "seed", "at_workers", "at_epoch", "network", "rate", "alternative", "tolerance",
    "undecidable",
)  # fmt: skip
"""What a number of which there is no run cannot have."""


class PublishedValue(Settings):
    """One number of the paper, with its status: how certain it is.

    It is of one series, or compares two of them (`than`); or of a training that is not declared here (`of`).
    """

    id: Id = Field(description="name of the value within its paper")
    item: Id | None = Field(default=None, description="figure or table that shows it; null: stated elsewhere")
    experiment: Id | None = Field(default=None, description="experiment that reproduces it; null: none, see `of`")
    series: Id | None = Field(default=None, description="series that reproduces it")
    of: Text | None = Field(
        default=None,
        description="the training, or with `comparison` the two, of which it is and of which no run is declared here, "
        "such as one of another size; null: that of the series",
    )
    than: Id | None = Field(
        default=None,
        description="series of the same experiment with which the value compares: the value is a difference or ratio",
    )
    comparison: Literal["difference", "ratio"] | None = Field(
        default=None,
        description="with than: whether the value is series - than (the default) or series / than; with of: "
        "what of two trainings it is",
    )
    relative_to: Id | None = Field(
        default=None,
        description="for times: series of the same experiment beside which it is compared, since only ratios of times "
        "can be compared between machines; the paper must have a published value of the same metric for it",
    )
    metric: ComparedMetric = Field(description="what was measured")
    seed: Count | None = Field(
        default=None,
        description="the seed of which it is the number, where ours draws the same problem; null: of several",
    )
    at_workers: PositiveInt | None = Field(
        default=None, description="number of workers of whose search it is the result; null: of the end of the run"
    )
    at_epoch: NonNegativeNumber | None = Field(
        default=None, description="epoch of whose evaluation it is the number; null: of the end of the run"
    )
    network: LinkName | None = Field(
        default=None,
        description="for times: the link between nodes; `resync time` is calibrated on two times of one link, and "
        "compares with those of the link that it is asked for; null: unknown",
    )
    value: float | None = Field(description="the number as published; null if it could not be found")
    bound: Literal["lower", "upper"] | None = Field(
        default=None,
        description="the value is only a bound: `over 5 h` is lower, `within 1.2 points` is upper; null: it is exact",
    )
    rate: PositiveNumber | None = Field(
        default=None,
        description="of a search: the learning rate that it found, which must agree, too; both are one number",
    )
    alternative: Id | None = Field(
        default=None,
        description="of a single training (n: 1): the series of the same experiment from which it must be told. "
        "It agrees only if the interval in which one more of our trainings would lie holds it and excludes that series",
    )
    std: NonNegativeNumber | None = Field(default=None, description="standard deviation over the paper's seeds")
    n: PositiveInt | None = Field(default=None, description="number of the paper's seeds")
    unit: str = Field(description="unit of value, std and tolerance; 1 for a ratio")
    tolerance: NonNegativeNumber | None = Field(
        default=None,
        description="difference that still counts as reproduced; null: from std and n, or that of the metric",
    )
    tolerance_reason: Text | None = Field(default=None, description="why the value has a tolerance of its own")
    status: Literal["verified", "secondary", "derived", "measured", "unverified", "missing"] = Field(
        description="verified: read in the paper itself; secondary: quoted by others; "
        "derived: computed from verified facts; measured: nobody published it, this project measured it with the "
        "original's program or weights; unverified: recalled or inferred; missing: unknown"
    )
    source: Text = Field(description="where the number comes from")
    scale: Scale = Field(default="paper", description="scale at which it was measured")
    headline: bool = Field(default=False, description="whether it is one of the numbers of the abstract")
    undecidable: Text | None = Field(
        default=None, description="why no verdict is possible on what is declared here; null: one is"
    )

    @property
    def is_ratio(self) -> bool:
        """Whether the value is a ratio of two series."""
        return self.comparison == "ratio"

    @property
    def is_of_one_series(self) -> bool:
        """Whether the number is what one series measured: not a bound, nor of two series, nor one of its searches."""
        return self.than is None and self.bound is None and self.at_workers is None and self.at_epoch is None

    @property
    def compared(self) -> tuple[tuple[str, str], ...]:
        """The (experiment, series) pairs that a comparison with our results needs; none without a run."""
        named = (self.series, self.series_beside, self.alternative)
        return tuple((self.experiment, series) for series in named if self.experiment and series)

    @property
    def is_bare_time(self) -> bool:
        """Whether it is a time that is compared with no other one, and so with nothing on another machine."""
        return METRICS[self.metric].depends_on == "hardware" and self.series_beside is None

    @property
    def series_beside(self) -> str | None:
        """The second series that a comparison with our results needs."""
        return self.than or self.relative_to

    def checks(self) -> Iterator[Check]:
        """Require a number unless the value is missing, the unit of its metric, and keys that go together."""
        yield from self._checks_of_place()
        if (self.value is None) != (self.status == "missing"):
            allowed = "null" if self.status == "missing" else "a number"
            yield ("value",), f"found {show(self.value)}, allowed: {allowed}, because of status {self.status}"
        if self.status == "measured" and self.metric in EXACT:
            yield ("status",), f"found measured for {self.metric}, allowed: for what runs measure"
        if self.undecidable and self.metric in EXACT:
            yield ("undecidable",), f"has no effect on {self.metric}, allowed: for what runs measure"
        unit = "1" if self.is_ratio else METRICS[self.metric].unit
        if self.unit != unit:
            of = "a ratio" if self.is_ratio else self.metric
            yield ("unit",), f"found {self.unit!r}, allowed: {unit!r}, the unit of {of}"
        one, value = METRICS[self.metric], self.value
        if value is not None and not (self.than or self.comparison) and not one.has(value):
            yield ("value",), f"found {value:g} {self.unit}, allowed: {one.allowed}, as {self.metric} can be"
        if self.network and METRICS[self.metric].depends_on != "hardware":
            yield ("network",), f"has no effect on {self.metric}, allowed: for times"
        if (self.tolerance is None) != (self.tolerance_reason is None):
            key = "tolerance" if self.tolerance is None else "tolerance_reason"
            yield (key,), "found null, allowed: tolerance and tolerance_reason together, or neither"
        yield from self._comparison_checks()

    def _checks_of_place(self) -> Iterator[Check]:
        """Require a series, or words on a training that is not declared, and nothing that only runs have."""
        given = [key for key in ("experiment", "series", "of") if getattr(self, key)]
        if given not in (["experiment", "series"], ["of"]):
            yield ("of",), f"found {' and '.join(given) or 'nothing'}, allowed: experiment and series, or of"
        elif self.of:
            if self.metric in EXACT:
                yield ("metric",), f"found {self.metric}, which needs no training, allowed: with experiment and series"
            for key in _BESIDE_RUNS:
                if getattr(self, key) is not None:
                    yield (key,), "has no effect with of, allowed: with experiment and series"

    def _comparison_checks(self) -> Iterator[Check]:
        """What a bound and the comparison of two series exclude."""
        hardware = METRICS[self.metric].depends_on == "hardware"
        if self.metric in EXACT and (self.than or self.bound or self.at_workers):
            yield ("than" if self.than else "bound",), f"found for {self.metric}, allowed: for what runs measure"
        if self.comparison and not (self.than or self.of):
            yield ("comparison",), "has no effect without than, allowed: with than, or with of"
        if self.series_beside and self.series_beside == self.series:
            yield ("than" if self.than else "relative_to",), f"found {self.series} again, allowed: another series"
        if self.relative_to and (self.than or not hardware):
            yield ("relative_to",), f"found for {self.metric}, allowed: for a time of one series, without than"
        if hardware and self.than and not self.is_ratio:
            yield ("comparison",), f"found a difference of {self.metric}, allowed: ratio, which machines have in common"
        if (self.is_ratio or self.relative_to) and self.value is not None and self.value <= 0:
            yield ("value",), f"found {self.value:g}, allowed: a number > 0, because it enters a ratio"
        if self.seed is not None and self.at_workers is None and self.at_epoch is None:
            yield ("seed",), "found without at_workers and at_epoch, allowed: with one of them"
        if self.at_workers is not None and self.seed is None:
            yield ("at_workers",), "found without seed, allowed: together with it"
        if self.at_epoch is not None and "metrics" not in METRICS[self.metric].files:
            yield ("at_epoch",), f"found for {self.metric}, allowed: for what is measured at evaluations"
        if self.rate is not None and self.at_workers is None:
            yield ("rate",), "found without at_workers, allowed: for a search"
        if self.alternative is not None and (self.n != 1 or self.series_beside or self.tolerance is not None):
            yield (
                ("alternative",),
                "has no effect here, allowed: for one number of a single training, without tolerance",
            )
        if self.std is not None and (self.bound or self.series_beside):
            yield ("std",), "has no effect on a bound or beside another series, allowed: null"


def most_certain(
    values: Iterable[PublishedValue], experiment: str, series: str, metric: str, item: str | None = None
) -> PublishedValue | None:
    """The most certain published value of a series and metric; of equally certain ones, that which `item` shows.

    Bounds and comparisons of two series are no values of a series.
    """
    wanted = (experiment, series, metric)
    candidates = [
        value for value in values if value.is_of_one_series and (value.experiment, value.series, value.metric) == wanted
    ]
    return min(candidates, key=lambda value: (CERTAINTY.index(value.status), value.item != item), default=None)


def quantities(values: Iterable[PublishedValue]) -> Iterator[list[PublishedValue]]:
    """The values of each quantity, in declared order: the most certain source first, then the others."""
    by_quantity: dict[tuple[object, ...], list[PublishedValue]] = {}
    for value in values:
        by_quantity.setdefault(_quantity(value), []).append(value)
    for same in by_quantity.values():
        yield sorted(same, key=lambda value: CERTAINTY.index(value.status))


def reference_time(value: PublishedValue, values: Iterable[PublishedValue]) -> float | None:
    """The published time of the series to which a time is relative; None if there is none."""
    if value.relative_to is None:
        return None
    known = [other for other in values if other.value is not None and other.scale == value.scale]
    assert value.experiment
    reference = most_certain(known, value.experiment, value.relative_to, value.metric)
    return reference.value if reference else None


class PublishedFile(RootModel[Items[PublishedValue]]):
    """`published.yaml`: the numbers of a paper."""
