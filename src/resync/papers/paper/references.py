"""Reading the published values and the claims of a paper, which refer to its experiments, series and items."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import RootModel

from resync.base.settings.base import check_unique
from resync.base.settings.errors import Problem, not_among
from resync.base.settings.problems import Collector
from resync.base.settings.tree import Node
from resync.papers.paper.claim import Claim, ClaimsFile
from resync.papers.paper.paper import Experiment, PaperFile
from resync.papers.paper.published import PublishedFile, PublishedValue, reference_time
from resync.runs.metrics.registry import unmeasured
from resync.runs.run.evaluated import is_evaluated_at
from resync.runs.run.run import Run

_Entry = TypeVar("_Entry", PublishedValue, Claim)


@dataclass(frozen=True)
class Known:
    """What entries may refer to: experiments, and the figures and tables of `file`.

    An experiment is None if its file cannot be read, so that references to it are not reported as well; `file` is None
    if paper.yaml cannot be read. `sound`: the experiments have no errors, so that their scales and `runs`, one of each
    (experiment, series, scale), can be relied on.
    """

    experiments: Mapping[str, Experiment | None]
    file: PaperFile | None
    sound: bool
    runs: Mapping[tuple[str, str, str], Run]

    def unmeasured(self, metric: str, series: Iterable[tuple[str, str]], scale: str, place: Node) -> Iterator[Problem]:
        """The first of these (experiment, series) at a scale that does not measure a metric."""
        for name, run in self._runs(series, scale):
            if lacking := unmeasured(run, metric):
                found = f"found {metric}, which {name} does not measure at scale {scale}"
                yield place.problem(f"{found}, allowed: with {lacking}")
                return

    def unevaluated(
        self, epoch: float, series: Iterable[tuple[str, str]], scale: str, place: Node
    ) -> Iterator[Problem]:
        """The first of these (experiment, series) at a scale that is not evaluated at an epoch."""
        for name, run in self._runs(series, scale):
            if not is_evaluated_at(run, epoch):
                found = f"found {epoch:g}, after which {name} is not evaluated at scale {scale}"
                yield place.problem(f"{found}, allowed: one of its {run.epochs} epochs that ends with an evaluation")
                return

    def dangling(
        self, name: str, place: Node, series: Mapping[str, Node], scales: Iterable[str] = (), at: Node | None = None
    ) -> Iterator[Problem]:
        """References, each at its place, to an experiment or series that does not exist, or not at these scales."""
        if name not in self.experiments:
            yield place.problem(not_among(name, self.experiments))
            return
        experiment = self.experiments[name]
        if experiment is None:
            return
        for one, node in series.items():
            if one not in experiment.series:
                yield node.problem(not_among(one, experiment.series))
            elif self.sound:
                existing = [scale for scale, names in experiment.scales.items() if one in names]
                for scale in scales:
                    if scale not in existing:
                        message = f"{one} does not exist at scale {scale}, allowed: {', '.join(existing)}"
                        yield (at or node).problem(message)

    def _runs(self, series: Iterable[tuple[str, str]], scale: str) -> Iterator[tuple[str, Run]]:
        for experiment, name in series if self.sound else ():
            if run := self.runs.get((experiment, name, scale)):
                yield f"{experiment}/{name}", run


def read_published(file: Path, known: Known, collector: Collector) -> tuple[PublishedValue, ...]:
    """The published values; a paper without the file has none."""
    entries = _read(PublishedFile, file, collector)
    for value, node in entries:
        if value.experiment is None:
            continue
        collector.note(_dangling_item(value, node, known))
        named = {
            getattr(value, key): node.entries[key] for key in ("series", "than", "relative_to") if getattr(value, key)
        }
        place = node.entries["experiment"]
        collector.note(known.dangling(value.experiment, place, named, [value.scale], node.entries.get("scale")))
        collector.note(known.unmeasured(value.metric, value.compared, value.scale, node.entries["metric"]))
        if value.at_epoch:
            place = node.entries["at_epoch"]
            collector.note(known.unevaluated(value.at_epoch, value.compared, value.scale, place))
    values = tuple(value for value, _ in entries)
    collector.note(problem for value, node in entries for problem in _without_reference(value, node, values))
    return values


def _dangling_item(entry: PublishedValue | Claim, node: Node, known: Known) -> Iterator[Problem]:
    """A figure or table that the paper does not have."""
    items = [item.id for item in (*known.file.figures, *known.file.tables)] if known.file else None
    if entry.item is not None and items is not None and entry.item not in items:
        yield node.entries["item"].problem(not_among(entry.item, items))


def _without_reference(value: PublishedValue, node: Node, values: tuple[PublishedValue, ...]) -> Iterator[Problem]:
    """A time relative to a series for which the same metric was not published."""
    if value.relative_to and (reference_time(value, values) is None):
        found = f"found {value.relative_to}, for which no {value.metric} is published"
        yield node.entries["relative_to"].problem(f"{found}, allowed: a series with a published value")


def read_claims(
    file: Path, known: Known, published: tuple[PublishedValue, ...], collector: Collector
) -> tuple[Claim, ...]:
    """The claims; a paper without the file has none. They share their names with the published values."""
    taken = {value.id for value in published}
    entries = _read(ClaimsFile, file, collector)
    for claim, node in entries:
        if claim.id in taken:
            found = f"found {claim.id!r}, which is a published value, allowed: a name of its own"
            collector.note([node.entries["id"].problem(found)])
        collector.note(_dangling_item(claim, node, known))
        if claim.curves:
            listed = [node.entries["curves"]] * len(claim.series)
        else:
            listed = node.entries["order"].value if claim.order else [node.entries["better"], node.entries["than"]]
        for series, place in zip(claim.series, listed, strict=True):
            experiment, name = claim.where(series)
            at = place if "/" in series else node.entries["experiment"]
            collector.note(known.dangling(experiment, at, {name: place}, claim.scales, node.entries["scales"]))
        for scale in claim.scales:
            shown = known.file.metrics_of(scale) if known.file else {}
            metric = shown.get(claim.metric, claim.metric)
            collector.note(known.unmeasured(metric, claim.compared, scale, node.entries["metric"]))
            if claim.at_epoch is not None:
                collector.note(known.unevaluated(claim.at_epoch, claim.compared, scale, node.entries["at_epoch"]))
        collector.note(_unfit_names(claim, node, [claim for claim, _ in entries]))
    collector.note(_best_and_final(entries))
    return tuple(claim for claim, _ in entries)


def _unfit_names(claim: Claim, node: Node, claims: list[Claim]) -> Iterator[Problem]:
    """Other claims that a claim names and that are not there, or cannot be what it needs."""
    tested = [one for one in claims if one.is_tested and one is not claim and set(one.scales) & set(claim.scales)]
    controls = [one.id for one in tested if not one.control]
    if claim.control and claim.control not in controls:
        yield node.entries["control"].problem(f"{not_among(claim.control, controls)} (without a control of its own)")
    if claim.continues:
        first = {one.id: one for one in tested if not one.continues}
        again = [one.id for one in claims if one.continues == claim.continues]
        if claim.continues not in first:
            yield node.entries["continues"].problem(not_among(claim.continues, first))
        elif len(again) > 1:
            yield node.entries["continues"].problem(f"found by {' and '.join(again)}, allowed: one continuation")
        elif 2 * (1 - claim.confidence) > 1 - first[claim.continues].confidence + _ROUNDING:
            least = 1 - (1 - first[claim.continues].confidence) / 2
            yield node.entries["continues"].problem(
                f"found confidence {claim.confidence:g}, allowed: at least {least:g}"
            )


def _best_and_final(entries: list[tuple[Claim, Node]]) -> Iterator[Problem]:
    """Claims of a paper on one experiment of which some compare best values, and others the same metric at the end."""
    named: dict[tuple[str, str], str] = {}
    for claim, node in entries:
        if claim.is_ours or claim.at_epoch is not None:
            continue
        other = named.setdefault((claim.experiment, claim.metric.removeprefix("best_")), claim.metric)
        if other != claim.metric:
            yield node.entries["metric"].problem(f"found {claim.metric}, allowed: {other}, as other claims there")


_ROUNDING = 1e-9


def _read(model: type[RootModel[tuple[_Entry, ...]]], file: Path, collector: Collector) -> list[tuple[_Entry, Node]]:
    """The entries of a list and where they were written; none without the file. Repeated names are noted."""
    node = collector.load(file) if file.exists() else None
    values = collector.validate(model, node) if node else None
    if node is None or values is None:
        return []
    names = (((index, "id"), value.id) for index, value in enumerate(values.root))
    collector.note(node.value[index].entries["id"].problem(message) for (index, _), message in check_unique(names))
    return list(zip(values.root, node.value, strict=True))
