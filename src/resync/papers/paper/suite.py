"""The suite: every paper of a folder, validated as a whole and expanded into runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from resync.base.settings.base import PACKAGE
from resync.base.settings.errors import ConfigError, not_among
from resync.base.settings.problems import Collector
from resync.papers.paper.folder import paper_folders, read_paper, read_scales
from resync.papers.paper.paper import Paper
from resync.runs.run.run import SCALES, Run


@dataclass(frozen=True)
class Suite:
    """Papers by name, and the runs of each, pilot runs included. A name that does not exist raises ConfigError."""

    papers: dict[str, Paper]
    expanded: dict[str, tuple[Run, ...]]
    scales: tuple[str, ...] = SCALES

    def runs(self, paper: str, scale: str, experiment: str | None = None, series: str | None = None) -> list[Run]:
        """The runs of a paper at a scale, in the order of its files; of one experiment or series if given."""
        return [run for run in self._all(paper, scale, experiment, series) if not run.is_pilot]

    def pilots(self, paper: str, scale: str, experiment: str | None = None, series: str | None = None) -> list[Run]:
        """The pilot runs, likewise: those with `pilot_seeds`, which no figure, table or claim shows."""
        return [run for run in self._all(paper, scale, experiment, series) if run.is_pilot]

    def _all(self, paper: str, scale: str, experiment: str | None, series: str | None) -> list[Run]:
        experiments = self._paper(paper).experiments
        _require("scale", scale, self.scales)
        if experiment is not None:
            _require(f"{paper}: experiment", experiment, experiments)
            if series is not None:
                _require(f"{paper}/{experiment}: series", series, experiments[experiment].series)
        return [
            run
            for run in self.expanded[paper]
            if run.scale == scale and experiment in (None, run.experiment) and series in (None, run.series)
        ]

    def item_runs(self, paper: str, item: str, scale: str) -> list[Run]:
        """The runs that a figure or table shows, in its order; none if it does not exist at the scale.

        What is computed without training shows the published settings at a scale that lacks its series.
        """
        _require(f"{paper}: item", item, self._paper(paper).items)
        _require("scale", scale, self.scales)
        declared = self.papers[paper]
        if not declared.series_of(item, scale) and declared.items[item].options.planned:
            scale = "paper"
        return [run for pair in declared.series_of(item, scale) for run in self.runs(paper, scale, *pair)]

    def references(self, paper: str, item: str, scale: str) -> tuple[Run, ...]:
        """A run at paper scale per series of an item; if not all exist there, of those shown at `scale` that do."""
        declared = self._paper(paper)
        pairs = declared.series_of(item, "paper") or declared.series_of(item, scale)
        return tuple(runs[0] for pair in pairs if (runs := self.runs(paper, "paper", *pair)))

    def items(self, paper: str, scale: str) -> list[str]:
        """The figures, then the tables, that exist at the scale."""
        declared = self._paper(paper)
        _require("scale", scale, self.scales)
        return [item for item in declared.items if declared.has_item(item, scale)]

    def places_of(self, name: str) -> list[str]:
        """`paper/name` of every figure, table and claim of this name."""
        of = {paper.id: {*paper.items, *(claim.id for claim in paper.claims)} for paper in self.papers.values()}
        return [f"{paper}/{name}" for paper, names in of.items() if name in names]

    def _paper(self, name: str) -> Paper:
        _require("paper", name, self.papers)
        return self.papers[name]


def load_suite(configs: Path, package: Path = PACKAGE, papers: Sequence[str] | None = None) -> Suite:
    """Read, validate and expand a folder of papers; components are looked up in the rooms of `package`.

    With `papers`, no file of any other paper is read. Raises one ConfigError that holds every problem of every file.
    """
    if not configs.is_dir():
        raise ConfigError([f"{configs}: the folder does not exist"])
    collector = Collector(package)
    scale_layers = read_scales(configs / "scales", collector)
    folders = {folder.name: folder for folder in paper_folders(configs, collector)}
    for name in papers or ():
        _require("paper", name, folders)
    read: dict[str, Paper] = {}
    runs: dict[str, tuple[Run, ...]] = {}
    for name in folders if papers is None else papers:
        paper, of_paper = read_paper(folders[name], scale_layers, collector)
        if paper is not None:
            read[paper.id], runs[paper.id] = paper, of_paper
    collector.raise_if_any()
    return Suite({paper.id: paper for paper in sorted(read.values(), key=_appeared)}, runs)


def _appeared(paper: Paper) -> tuple[bool, str]:
    """By their numbers on arXiv, papers are in the order of their appearance; those without a number come last."""
    return paper.arxiv is None, paper.arxiv or paper.id


def _require(what: str, name: str, known: Iterable[str]) -> None:
    names = list(known)
    if name not in names:
        raise ConfigError([f"{what}: {not_among(name, names)}"])
