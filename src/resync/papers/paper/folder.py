"""Reading the folders of a suite: scales, experiments, figures and tables, and references to them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from resync.base.files import read_json
from resync.base.settings.base import is_id
from resync.base.settings.errors import Problem
from resync.base.settings.problems import Collector
from resync.base.settings.tree import Node, without
from resync.papers.paper.claim import FIXED
from resync.papers.paper.expand import expand
from resync.papers.paper.logs import LogsFile
from resync.papers.paper.paper import Experiment, Paper, PaperFile
from resync.papers.paper.records import read_records
from resync.papers.paper.references import Known, read_claims, read_published
from resync.runs.run.reduction import LoadedScale, Reduction, ScaleFile
from resync.runs.run.run import SCALES, Run
from resync.runs.run.starts import with_starts

_Experiments = dict[str, Experiment | None]
"""Experiments by name; None for an unreadable file, so that references to it are not reported as well."""


def read_scales(folder: Path, collector: Collector) -> dict[str, LoadedScale]:
    """The layers that all experiments share, by scale."""
    layers = {}
    for scale in SCALES:
        node = collector.load(folder / f"{scale}.yaml")
        if node is not None:
            collector.validate(ScaleFile, node, partial=True)
            reduced = node.child("reduced")
            reduction = collector.validate(Reduction, reduced) if reduced and reduced.value is not None else None
            layers[scale] = LoadedScale(without(node, "reduced"), reduction, reduced)
    _refuse_other_files(folder, [f"{scale}.yaml" for scale in SCALES], collector)
    return layers


def paper_folders(configs: Path, collector: Collector) -> list[Path]:
    """The folders of the papers, by name."""
    _refuse_other_files(configs, [], collector)
    folders = [path for path in sorted(configs.iterdir()) if path.is_dir() and path.name != "scales"]
    return _valid_names(folders, collector)


def read_paper(
    folder: Path, scale_layers: dict[str, LoadedScale], collector: Collector
) -> tuple[Paper | None, tuple[Run, ...]]:
    """A paper and its runs at all scales; None if the paper cannot be read, with its problems noted."""
    _refuse_other_files(folder, ["paper.yaml", "published.yaml", "claims.yaml", "logs.yaml", "records.yaml"], collector)
    experiments, runs = _read_experiments(folder, scale_layers, collector)
    sound = not collector.found_any
    node = collector.load(folder / "paper.yaml")
    file = collector.validate(PaperFile, node) if node else None
    by_name: dict[tuple[str, str, str], Run] = {(run.experiment, run.series, run.scale): run for run in runs}
    known = Known(experiments, file, sound, by_name)
    if node is not None:
        collector.note(_dangling_references(node, known))
    published = read_published(folder / "published.yaml", known, collector)
    published += read_records(folder, known, collector)
    claims = read_claims(folder / "claims.yaml", known, published, collector)
    logs_node = collector.load(folder / "logs.yaml") if (folder / "logs.yaml").exists() else None
    logs = (collector.validate(LogsFile, logs_node) if logs_node else None) or LogsFile()
    if file is None or node is None:
        return None, ()
    paper = Paper.model_construct(
        **dict(file),
        id=folder.name,
        experiments={name: experiment for name, experiment in experiments.items() if experiment},
        published=published,
        claims=claims,
        fixed=read_json(folder / FIXED) if (folder / FIXED).exists() else {},
        logs=logs,
    )
    if not collector.found_any:
        collector.note(_unreachable_items(node, paper))
        collector.note(_unmeasured(node, paper, known))
        collector.note(_unused_metrics(node, paper))
    return paper, tuple(runs)


def _read_experiments(
    folder: Path, scale_layers: dict[str, LoadedScale], collector: Collector
) -> tuple[_Experiments, list[Run]]:
    experiments: _Experiments = {}
    runs: list[Run] = []
    _refuse_other_files(folder / "experiments", ["*.yaml"], collector)
    for file in _valid_names(sorted((folder / "experiments").glob("*.yaml")), collector):
        node = collector.load(file)
        experiments[file.stem] = None
        if node is not None:
            experiments[file.stem], expanded = expand(folder.name, file.stem, node, scale_layers, collector)
            runs += expanded
    collector.lines += _dangling_grids(folder, experiments)
    runs, problems = with_starts(runs)
    collector.lines += [f"{folder}: {problem}" for problem in problems]
    return experiments, runs


def _dangling_grids(folder: Path, experiments: _Experiments) -> Iterator[str]:
    """Series that `tuned` or the regime of an experiment name and that no experiment of the paper has."""
    for name, experiment in experiments.items():
        grid = experiment.tuned.grid if experiment and experiment.tuned else {}
        bounds = experiment.regime.bounds if experiment and experiment.regime else ()
        named = [("tuned.grid", f"{name}/{series}") for series in grid]
        named += [("tuned.grid", one) for listed in grid.values() for one in listed]
        named += [("regime.bounds", bound.series if "/" in bound.series else f"{name}/{bound.series}")
                  for bound in bounds if bound.series]  # fmt: skip
        for key, one, (where, _, series) in ((key, one, one.partition("/")) for key, one in named):
            there = experiments.get(where)
            if (there or where not in experiments) and series not in (there.series if there else ()):
                yield f"{folder}/experiments/{name}.yaml: {key}: found {one}, allowed: a series, experiment/series"


def _dangling_references(paper: Node, known: Known) -> Iterator[Problem]:
    for _, item in _items(paper):
        for reference in item.listed_at("series"):
            if isinstance(reference.value, str):
                name, _, series = reference.value.partition("/")
                yield from known.dangling(name, reference, {series: reference} if series else {})
    for timing in paper.listed_at("times"):
        fitted = filter(None, [timing.child("compute")])
        for place in (*timing.listed_at("experiments"), *fitted):
            if isinstance(place.value, str):
                yield from known.dangling(place.value, place, {})


def _unreachable_items(paper_node: Node, paper: Paper) -> Iterator[Problem]:
    for name, item in _items(paper_node):
        if not any(paper.has_item(name, scale) for scale in SCALES):
            yield item.problem("no scale has all of these series, allowed: series that share a scale", "series")


def _unmeasured(paper_node: Node, paper: Paper, known: Known) -> Iterator[Problem]:
    """Metrics of figures and tables that one of their series does not measure."""
    for name, item in _items(paper_node):
        place = item.child("options") or item
        for scale in SCALES:
            for metric in paper.item_at(name, scale).options.shown_metrics:
                yield from known.unmeasured(metric, paper.series_of(name, scale), scale, place)


def _unused_metrics(paper_node: Node, paper: Paper) -> Iterator[Problem]:
    """Metrics for which `metrics_at` has others, and that nothing names."""
    named = {claim.metric for claim in paper.claims}
    named |= {metric for item in paper.items.values() for metric in item.options.shown_metrics}
    for metrics in paper_node.entries_at("metrics_at").values():
        for name, place in metrics.entries.items():
            if name not in named:
                yield place.problem("has no effect, allowed: a metric that a figure, table or claim names")


def _items(paper: Node) -> Iterator[tuple[str, Node]]:
    for group in ("figures", "tables"):
        for item in paper.listed_at(group):
            yield (item.entries["id"].value if "id" in item.entries else ""), item


def _valid_names(paths: Iterable[Path], collector: Collector) -> list[Path]:
    """The `paths` whose names are valid for a paper or an experiment; the others are noted."""
    good = []
    for path in paths:
        if is_id(path.stem):
            good.append(path)
        elif not path.name.startswith((".", "_")):
            allowed = "lower-case letters, digits and _"
            collector.lines.append(f"{path}: found the name {path.stem!r}, allowed: {allowed}")
    return good


def _refuse_other_files(folder: Path, known: list[str], collector: Collector) -> None:
    """Note YAML files that nothing reads: their name or place is a mistake."""
    for file in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        if file.name not in known and not (file.suffix == ".yaml" and "*.yaml" in known):
            allowed = ", ".join(known) or "folders of papers, and scales/"
            collector.lines.append(f"{file}: nothing reads this file, allowed: {allowed}")
