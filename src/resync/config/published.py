"""The numbers that a paper published: what each one measures, and how certain it is."""

from collections.abc import Iterable, Iterator
from typing import Literal

from pydantic import Field, RootModel

from resync.config.metrics import METRICS, ComparedMetric
from resync.config.run import Scale
from resync.settings.base import Check, Id, Items, NonNegativeNumber, PositiveInt, Settings, Text
from resync.settings.errors import show

CERTAINTY = ("verified", "secondary", "derived", "unverified", "missing")
"""The status words of published values, the most certain first."""


class PublishedValue(Settings):
    """One number of the paper, with its status: how certain it is."""

    id: Id = Field(description="name of the value within its paper")
    item: Id | None = Field(default=None, description="figure or table that shows it; null: stated elsewhere")
    experiment: Id = Field(description="experiment that reproduces it")
    series: Id = Field(description="series that reproduces it")
    metric: ComparedMetric = Field(description="what was measured")
    value: float | None = Field(description="the number as published; null if it could not be found")
    std: NonNegativeNumber | None = Field(default=None, description="standard deviation over the paper's seeds")
    n: PositiveInt | None = Field(default=None, description="number of the paper's seeds")
    unit: str = Field(description="unit of value, std and tolerance")
    tolerance: NonNegativeNumber | None = Field(
        default=None,
        description="difference that still counts as reproduced; null: from std and n, or that of the metric",
    )
    status: Literal["verified", "secondary", "derived", "unverified", "missing"] = Field(
        description="verified: read in the paper itself; secondary: quoted by others; "
        "derived: computed from verified facts; unverified: recalled or inferred; missing: unknown"
    )
    source: Text = Field(description="where the number comes from")
    scale: Scale = Field(default="paper", description="scale at which it was measured")

    def checks(self) -> Iterator[Check]:
        """Require a number unless the value is missing, and the unit of its metric."""
        if (self.value is None) != (self.status == "missing"):
            allowed = "null" if self.status == "missing" else "a number"
            yield ("value",), f"found {show(self.value)}, allowed: {allowed}, because of status {self.status}"
        unit = METRICS[self.metric].unit
        if self.unit != unit:
            yield ("unit",), f"found {self.unit!r}, allowed: {unit!r}, the unit of {self.metric}"


def most_certain(
    values: Iterable[PublishedValue], experiment: str, series: str, metric: str, item: str | None = None
) -> PublishedValue | None:
    """The most certain published value of a series and metric; of equally certain ones, that which `item` shows."""
    found = [
        value for value in values if (value.experiment, value.series, value.metric) == (experiment, series, metric)
    ]
    return min(found, key=lambda value: (CERTAINTY.index(value.status), value.item != item), default=None)


class PublishedFile(RootModel[Items[PublishedValue]]):
    """`published.yaml`: the numbers of a paper."""
