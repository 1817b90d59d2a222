"""A paper: what it compares, which figures and tables show it, what was published and claimed."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, RootModel, ValidationInfo, WithJsonSchema, field_validator

from resync.config.parts import KindOptions
from resync.config.run import Layer, Scale, SeriesLayer
from resync.settings.base import (
    Check,
    Id,
    Items,
    NonNegativeNumber,
    PositiveInt,
    Settings,
    Text,
    checks_failed,
    reading_of,
)
from resync.settings.errors import not_among, show
from resync.settings.options import option_names, options_of

if TYPE_CHECKING:
    from resync.config.claim import Claim

METRICS = {
    "val_top1": "%",
    "val_loss": "nats",
    "best_val_top1": "%",
    "best_train_loss": "nats",
    "best_val_loss": "nats",
    "test_bleu": "BLEU",
    "best_test_bleu": "BLEU",
    "volume_percent": "%",
    "averaging_error": "1",
    "hours": "h",
    "communication_hours": "h",
    "seconds_per_step": "s",
}
"""What a published value may be a value of, with its unit."""

SECONDS_PER_HOUR = 3600

CERTAINTY = ("verified", "secondary", "derived", "unverified", "missing")
"""The status words of published values, the most certain one first."""


class Item(Settings):
    """A figure or a table: a kind of picture and the series that it shows."""

    id: Id = Field(description="name of the item and of its files")
    kind: str = Field(description="kind of figure or table, a component of render/")
    title: Text = Field(description="title above the item")
    caption: str = Field(default="", description="what the reader should see, and what limits it")
    series: Items[Text] = Field(
        min_length=1, description="`experiment/series`, or `experiment` for all its series at the scale"
    )
    options: Annotated[KindOptions, WithJsonSchema({"type": "object"})] = Field(
        default={},  # type: ignore[assignment]  # replaced by _options_of_kind
        description="options of the kind",
    )

    @field_validator("kind")
    @classmethod
    def _kind_exists(cls, value: str, info: ValidationInfo) -> str:
        known = option_names("render", reading_of(info).package)
        if value not in known:
            raise checks_failed("kind", [((), not_among(value, known))])
        return value

    @field_validator("options", mode="before")
    @classmethod
    def _options_of_kind(cls, value: Any, info: ValidationInfo) -> Any:
        """The options with their defaults filled in."""
        if "kind" not in info.data:  # which has an error of its own
            return KindOptions.model_construct(name="")
        if not isinstance(value, dict):
            return value
        chosen = options_of("render", info.data["kind"], reading_of(info).package)
        return chosen.model_validate(value, context=info.context)


class PaperFile(Settings):
    """`paper.yaml`: where the paper appeared and what it shows."""

    title: Text = Field(description="title of the paper")
    authors: Items[Text] = Field(min_length=1, description="authors in order")
    venue: Text = Field(description="where and when it appeared")
    arxiv: str | None = Field(default=None, pattern=r"^\d{4}\.\d{4,5}$", description="arXiv number, quoted")
    figures: Items[Item] = Field(default=(), description="figures that are redrawn")
    tables: Items[Item] = Field(default=(), description="tables that are filled again")

    def checks(self) -> Iterator[Check]:
        """Items have names of their own: they share a folder."""
        seen: set[str] = set()
        for group in ("figures", "tables"):
            for index, item in enumerate(getattr(self, group)):
                if item.id in seen:
                    yield (group, index, "id"), f"found {item.id!r} again, allowed: a name of its own"
                seen.add(item.id)


class PublishedValue(Settings):
    """One number of the paper, with the word that says how well it is known."""

    id: Id = Field(description="name of the value within its paper")
    item: Id | None = Field(default=None, description="figure or table that shows it; null: said elsewhere")
    experiment: Id = Field(description="experiment that reproduces it")
    series: Id = Field(description="series that reproduces it")
    metric: Literal[tuple(METRICS)] = Field(description="what was measured")  # type: ignore[valid-type]
    value: float | None = Field(description="the number as published; null if it could not be found")
    std: NonNegativeNumber | None = Field(default=None, description="standard deviation over the paper's seeds")
    n: PositiveInt | None = Field(default=None, description="number of the paper's seeds")
    unit: str = Field(description="unit of value, std and tolerance")
    tolerance: NonNegativeNumber | None = Field(
        default=None,
        description="difference that counts as reproduced; null: from std and n, or by the metric",
    )
    status: Literal["verified", "secondary", "derived", "unverified", "missing"] = Field(
        description="verified: read in the paper's own text; secondary: quoted by others; "
        "derived: computed from verified facts; unverified: recalled or inferred; missing: not known"
    )
    source: Text = Field(description="where the number comes from")
    scale: Scale = Field(default="paper", description="scale at which it was measured")

    def checks(self) -> Iterator[Check]:
        """A missing value has no number, every other has one, in the unit of its metric."""
        if (self.value is None) != (self.status == "missing"):
            allowed = "null" if self.status == "missing" else "a number"
            yield ("value",), f"found {show(self.value)}, allowed: {allowed}, because of status {self.status}"
        unit = METRICS[self.metric]
        if self.unit != unit:
            yield ("unit",), f"found {self.unit!r}, allowed: {unit!r}, the unit of {self.metric}"


def most_certain(
    values: Iterable[PublishedValue], experiment: str, series: str, metric: str, item: str | None = None
) -> PublishedValue | None:
    """The most certain published value of a series and metric, the one that `item` shows where two are equally so."""
    found = [
        value for value in values if (value.experiment, value.series, value.metric) == (experiment, series, metric)
    ]
    return min(found, key=lambda value: (CERTAINTY.index(value.status), value.item != item), default=None)


class PublishedFile(RootModel[Items[PublishedValue]]):
    """`published.yaml`: the numbers of a paper."""


class ScaleLayer(Layer):
    """What an experiment changes at one scale."""

    series_only: Items[Id] | None = Field(
        default=None, min_length=1, description="the series that exist at this scale; null: all of them"
    )
    series: dict[Id, Layer] = Field(default={}, description="what single series change at this scale")


class ExperimentFile(Settings):
    """An experiment: series that are compared, declared in layers that are merged for every scale.

    Later layers win: base, the scale's own file, `scales.<scale>`, the series, and last
    `scales.<scale>.series.<series>`. Mappings merge key by key; a mapping that changes its `name` or `rule`
    replaces the other one whole.
    """

    layered: ClassVar[bool] = False

    expect: Text = Field(description="the claim: what should come out, on which hardware, how long it takes")
    base: Layer = Field(description="settings that the series share")
    series: dict[Id, SeriesLayer] = Field(min_length=1, description="the series, in the order of figures and tables")
    scales: dict[Scale, ScaleLayer] = Field(
        min_length=1, description="the scales at which the experiment exists, with what changes there"
    )


@dataclass(frozen=True)
class Experiment:
    """A loaded experiment: labels of its series in order, and the series that exist at each of its scales."""

    id: str
    expect: str
    labels: Mapping[str, str]
    scales: Mapping[str, tuple[str, ...]]

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series, in order."""
        return tuple(self.labels)


@dataclass(frozen=True)
class Paper:
    """A loaded paper."""

    id: str
    title: str
    authors: tuple[str, ...]
    venue: str
    arxiv: str | None
    experiments: Mapping[str, Experiment]
    figures: dict[str, Item]
    tables: dict[str, Item]
    published: tuple[PublishedValue, ...]
    claims: "tuple[Claim, ...]"

    @property
    def items(self) -> dict[str, Item]:
        """Figures and tables by name."""
        return self.figures | self.tables

    def series_of(self, item: str, scale: str) -> tuple[tuple[str, str], ...]:
        """(experiment, series) pairs of an item in its order; empty unless all of them exist at the scale.

        A reference to a whole experiment stands for the series that it has at the scale.
        """
        pairs: list[tuple[str, str]] = []
        for reference in self.items[item].series:
            experiment, _, series = reference.partition("/")
            existing = self.experiments[experiment].scales.get(scale, ())
            if not existing or (series and series not in existing):
                return ()
            pairs += [(experiment, name) for name in ([series] if series else existing)]
        return tuple(dict.fromkeys(pairs))
