"""A paper: its experiments, its figures and tables, its published values and its claims."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, WithJsonSchema, field_validator

from resync.base.settings.base import (
    Check,
    Id,
    Items,
    PositiveInt,
    PositiveNumber,
    Settings,
    Text,
    check_unique,
    checks_failed,
    reading_of,
    wrong,
)
from resync.base.settings.errors import not_among, show
from resync.papers.paper.claim import Claim, Fixed, Regime, SeriesName, fingerprint
from resync.papers.paper.logs import LogsFile
from resync.papers.paper.published import PublishedValue
from resync.papers.render.options.base import KindOptions, Width
from resync.runs.metrics.registry import METRICS, ComparedMetric
from resync.runs.run.in_words import title_of
from resync.runs.run.run import Run, RunLayer, Scale, SeriesLayer
from resync.workers.formulas.clock import LinkName


class Item(Settings):
    """A figure or a table: its kind and the series that it shows."""

    id: Id = Field(description="name of the item and of its files")
    kind: str = Field(description="kind of figure or table, a component of render/")
    title: Text = Field(description="title above the item")
    caption: str = Field(default="", description="what the reader should see, and its limitations")
    series: Items[Text] = Field(
        default=(),
        validate_default=True,
        description="`experiment/series`, or `experiment` for all of its series at the scale; "
        "omitted for a kind that shows none",
    )
    width: Width | None = Field(
        default=None,
        description="column: one column of a page with two, 3.25 in; text: the block of both, 6.75 in; null: that of "
        "the kind",
    )
    options: Annotated[KindOptions, WithJsonSchema({"type": "object"})] = Field(
        default={},  # type: ignore[assignment]  # replaced by _options_of_kind
        description="options of the kind",
    )

    def title_at(self, runs: Iterable[Run], references: Iterable[Run]) -> str:
        """The title beside what these runs trained, see `title_of`; what is computed stands for nothing."""
        return self.title if self.options.planned else title_of(self.title, runs, references)

    @field_validator("kind")
    @classmethod
    def _kind_exists(cls, value: str, info: ValidationInfo) -> str:
        known = KindOptions.names(reading_of(info).package)
        if value not in known:
            raise checks_failed("kind", [((), not_among(value, known))])
        return value

    @field_validator("series")
    @classmethod
    def _series_of_kind(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Require series exactly if the kind shows series."""
        if "kind" not in info.data:
            return value
        name = info.data["kind"]
        kind = KindOptions.named(name, reading_of(info).package)
        if bool(value) != kind.shows_series:
            allowed = f"none, because {name} shows no series" if value else "at least one series"
            raise checks_failed("series", [wrong((), show(list(value)), allowed)])
        return value

    @field_validator("options", mode="before")
    @classmethod
    def _options_of_kind(cls, value: Any, info: ValidationInfo) -> Any:
        """The options with their defaults filled in."""
        if "kind" not in info.data:  # reported separately
            return KindOptions.model_construct(name="")
        if not isinstance(value, dict):
            return value
        chosen = KindOptions.named(info.data["kind"], reading_of(info).package)
        return chosen.model_validate(value, context=info.context)


class MissingItem(Settings):
    """A figure or table of the paper that is not regenerated."""

    title: Text = Field(description="the figure or table, and what is known of its content")
    reason: Text = Field(description="what is not known or not possible here")


class Timing(Settings):
    """The network and devices of the paper, on which runs are timed whose workers take turns in a process."""

    experiments: Items[Id] = Field(min_length=1, description="experiments that are timed on them")
    network: LinkName = Field(description="link between nodes")
    compute: PositiveNumber | Id = Field(
        description="seconds of computing per step of a worker; or the experiment to two of whose published times it "
        "is fitted"
    )
    parameters: PositiveInt | None = Field(
        default=None, description="parameters of the model, of four bytes each; null: those of the run's own model"
    )


class PaperFile(Settings):
    """`paper.yaml`: where the paper appeared and what it shows."""

    title: Text = Field(description="title of the paper")
    short: Text | None = Field(
        default=None, description="how it is called in tables and menus; null: its folder's name"
    )
    authors: Items[Text] = Field(default=(), description="authors in order; none of a question of your own")
    venue: str = Field(default="", description="where and when it appeared; empty: nowhere")
    arxiv: str | None = Field(default=None, pattern=r"^\d{4}\.\d{4,5}$", description="arXiv number, quoted")
    figures: Items[Item] = Field(default=(), description="figures that are redrawn")
    tables: Items[Item] = Field(default=(), description="tables that are regenerated")
    gallery: Items[Id] = Field(
        default=(), description="figures that the first page of a site shows of the paper, the best first; empty: all"
    )
    times: Items[Timing] = Field(
        default=(), description="networks and devices on which runs of simulated workers are timed, by experiment"
    )
    missing: Items[MissingItem] = Field(
        default=(), description="figures and tables of the paper that are not regenerated, which the audit shows"
    )
    metrics_at: dict[Scale, dict[ComparedMetric, ComparedMetric]] = Field(
        default={},
        description="by scale, the metrics that figures, tables and claims show there instead of those that they name: "
        "the ones that the paper published, where it did not evaluate what small runs do; published values name their "
        "metric themselves",
    )

    def checks(self) -> Iterator[Check]:
        """Require unique names of items, which share a folder, and metrics that can stand for one another."""
        for scale, metrics in self.metrics_at.items():
            for name, instead in metrics.items():
                same = METRICS[name].unit, METRICS[name].better
                if instead == name or (METRICS[instead].unit, METRICS[instead].better) != same:
                    allowed = f"another metric in {METRICS[name].unit} of which {METRICS[name].better} is better"
                    yield wrong(("metrics_at", scale, name), instead, allowed)
        figures = [figure.id for figure in self.figures]
        for index, name in enumerate(self.gallery):
            if name not in figures:
                yield ("gallery", index), not_among(name, figures)
        yield from check_unique(
            ((group, index, "id"), item.id)
            for group in ("figures", "tables")
            for index, item in enumerate(getattr(self, group))
        )
        yield from check_unique(
            (("times", index, "experiments", place), name)
            for index, timing in enumerate(self.times)
            for place, name in enumerate(timing.experiments)
        )

    def timing_of(self, experiment: str) -> Timing | None:
        """The network and devices on which an experiment is timed; None if they are not known."""
        return next((timing for timing in self.times if experiment in timing.experiments), None)

    def metrics_of(self, scale: str) -> Mapping[str, str]:
        """The metrics that are shown at a scale instead of others, by the names of these."""
        return next((metrics for at, metrics in self.metrics_at.items() if at == scale), {})


class ScaleLayer(RunLayer):
    """Changes of an experiment at one scale."""

    series_only: Items[Id] | None = Field(
        default=None, min_length=1, description="the series that exist at this scale; null: all of them"
    )
    series: dict[Id, RunLayer] = Field(default={}, description="changes of individual series at this scale")


class Tuned(Settings):
    """Where series have their learning rates and other tuned settings from: the best one of a grid of other series."""

    metric: ComparedMetric = Field(description="metric whose mean at the end decides which one is best")
    grid: dict[Id, Items[SeriesName]] = Field(
        min_length=1,
        description="by series, those of its grid, `experiment/series`; it must have the best one's value of every "
        "setting in which they differ",
    )


Blocks = Literal["seed", "start"]


class ExperimentFile(Settings):
    """An experiment: series to compare, declared in layers that are merged for every scale.

    Later layers take precedence: base, the scale's own file, `scales.<scale>`, the series, and last
    `scales.<scale>.series.<series>`. Mappings merge key by key; a mapping that changes its `name` or `rule`
    replaces the earlier one as a whole.
    """

    layered: ClassVar[bool] = False

    expect: Text = Field(description="the expected result, on which hardware, and how long it takes")
    blocks: Blocks = Field(
        default="seed",
        description="what makes runs of series with the same model and data comparable one by one, so that their tests "
        "are paired: seed, whose initial weights and batches they share; start, the same, where the mean over the "
        "seeds with one `start_from` counts once",
    )
    tuned: Tuned | None = Field(default=None, description="where tuned settings come from; null: nothing was tuned")
    regime: Regime | None = Field(
        default=None,
        description="what its trainings at a reduced scale must be for claims of the paper on them to be tested; null: "
        "none is tested there. Scale paper has the published settings and needs none",
    )
    base: RunLayer = Field(description="settings that the series share")
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
    blocks: Blocks = "seed"
    tuned: Tuned | None = None
    regime: Regime | None = None

    @property
    def regime_fingerprint(self) -> str:
        """The fingerprint of its regime, and of the grids with which its rates are tuned."""
        parts = {"regime": self.regime, "tuned": self.tuned}
        plain = {key: part.model_dump(mode="json", exclude_defaults=True) for key, part in parts.items() if part}
        return fingerprint(plain, *parts)

    @property
    def series(self) -> tuple[str, ...]:
        """Names of the series, in order."""
        return tuple(self.labels)


class Paper(PaperFile):
    """A loaded paper: the content of `paper.yaml` and of the files beside it."""

    id: str
    experiments: Mapping[str, Experiment]
    published: tuple[PublishedValue, ...]
    claims: tuple[Claim, ...]
    fixed: Fixed
    logs: LogsFile

    @property
    def name(self) -> str:
        """How the paper is called in tables and menus."""
        return self.short or self.id.replace("_", " ")

    @property
    def items(self) -> dict[str, Item]:
        return {item.id: item for item in (*self.figures, *self.tables)}

    def is_figure(self, item: str) -> bool:
        """Whether an item is a figure; the others are tables."""
        return any(figure.id == item for figure in self.figures)

    def item_at(self, item: str, scale: str) -> Item:
        """An item with the metrics that it shows at a scale."""
        declared, metrics = self.items[item], self.metrics_of(scale)
        return declared.model_copy(update={"options": declared.options.showing(metrics)}) if metrics else declared

    def claims_at(self, scale: str) -> tuple[Claim, ...]:
        """The claims, with the metrics that they compare at a scale."""
        metrics = self.metrics_of(scale)
        return tuple(
            claim.model_copy(update={"metric": metrics.get(claim.metric, claim.metric)}) for claim in self.claims
        )

    def published_beside(self, scale: str) -> tuple[PublishedValue, ...]:
        """The published values; one of another scale has the metric beside which this scale shows it."""
        here = self.metrics_of(scale)
        values = []
        for value in self.published:
            there = {instead: name for name, instead in self.metrics_of(value.scale).items()}
            name = there.get(value.metric, value.metric)
            metric = value.metric if value.scale == scale else here.get(name, name)
            values.append(value.model_copy(update={"metric": metric}))
        return tuple(values)

    def shown(self, item: str) -> set[tuple[str, str]]:
        """The (experiment, series) pairs of an item at any scale."""
        references = [reference.partition("/") for reference in self.items[item].series]
        return {
            (experiment, name)
            for experiment, _, series in references
            for name in ([series] if series else self.experiments[experiment].series)
        }

    def has_item(self, item: str, scale: str) -> bool:
        """Whether an item exists at a scale: all of its series do, or it needs none of that scale."""
        declared = self.items[item]
        kind = declared.options
        return not declared.series or kind.of_paper_scale or kind.planned or bool(self.series_of(item, scale))

    def series_of(self, item: str, scale: str) -> tuple[tuple[str, str], ...]:
        """(experiment, series) pairs of an item, in its order; empty unless all of them exist at the scale.

        A reference to a whole experiment stands for the series that it has at the scale. An item whose numbers are of
        the paper's scale shows no runs of another one.
        """
        if self.items[item].options.of_paper_scale and scale != "paper":
            return ()
        pairs: list[tuple[str, str]] = []
        for reference in self.items[item].series:
            experiment, _, series = reference.partition("/")
            existing = self.experiments[experiment].scales.get(scale, ())
            if not existing or (series and series not in existing):
                return ()
            pairs += [(experiment, name) for name in ([series] if series else existing)]
        return tuple(dict.fromkeys(pairs))
