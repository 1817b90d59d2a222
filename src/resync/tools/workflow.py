"""The files that the workflow makes for the papers, and the inputs whose change causes each to be made again.

The rules call these functions with the names in a target. Paths are relative to the repository, where Snakemake runs.
"""

import hashlib
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Literal

from resync.base.files import read_json, write_text
from resync.base.settings.errors import ConfigError, not_among, suggestion
from resync.papers.paper import Suite
from resync.papers.paper.paper import Item
from resync.papers.plan.rehearsed import NAME, failures, shapes
from resync.papers.render.options.base import KindOptions
from resync.runs.results import state
from resync.runs.results.summary import NAME as SUMMARY
from resync.runs.run import Run

RUN = "results/{scale}/{paper}/{experiment}/{series}/seed{seed}"
"""Pattern of a run's directory."""
RUN_FILES = ("metrics.csv", "steps.csv", "summary.json")
"""The files that training writes there."""
FIGURE_FILES = (".pdf", ".png", ".svg", ".csv")
TABLE_FILES = (".md", ".tex", ".csv")
SOURCE = Path("src/resync")
METRICS = f"{SOURCE}/runs/metrics/registry.py"
"""Titles, units and tolerances."""
PLANNING = ("plan", "exchanges", "formulas", "models/options", "sync/options")
"""The folders of what is computed from a configuration alone."""
_SHARED = (f"{SOURCE}/runs/results/seed_values.py", f"{SOURCE}/base/text_tables.py")
"""What all kinds of figures and tables use of other rooms."""
TARGETS = ("all", "plan", "rehearse", "audit", "report")
"""The targets beside the papers and the files."""


class Targets:
    """Files of one scale. A name that is not declared raises ConfigError."""

    def __init__(self, suite: Suite, scale: str) -> None:
        self.suite, self.scale = suite, scale
        self._yaml: dict[str, str] = {}

    @cached_property
    def runs(self) -> dict[str, Run]:
        return {f"results/{run.directory}": run for paper in self.suite.papers for run in self._runs(paper)}

    @cached_property
    def pilots(self) -> dict[str, Run]:
        runs = (run for paper in self.suite.papers for run in self.suite.pilots(paper, self.scale))
        return {f"results/{run.directory}": run for run in runs}

    @property
    def pilot_files(self) -> list[str]:
        return _files(self.pilots.values())

    def run(self, directory: str) -> Run:
        run = self.runs.get(directory) or self.pilots.get(directory)
        if run is None:
            raise ConfigError([f"paper_configs declares no run {directory}"])
        return run

    def run_yaml(self, directory: str) -> str:
        """The text of the `run.yaml` in a run's directory, which Snakemake asks for several times."""
        if directory not in self._yaml:
            self._yaml[directory] = self.run(directory).to_yaml()
        return self._yaml[directory]

    def kept(self, run: Run, forced: Collection[str]) -> Literal["trained", "imported"] | None:
        """Whether a run has all results of its declared configuration, or an imported log of whatever configuration.

        The times of its files, which may have been copied, then say nothing. None if it or the run from whose model it
        starts is among `forced`, the rules and files that Snakemake is to make in any case, or has no such results.
        """
        directory = f"results/{run.directory}"
        made = [f"{directory}/{name}" for name in RUN_FILES]
        if not {"train", *made}.isdisjoint(forced) or not all(map(os.path.exists, made)):
            return None
        try:
            summary = read_json(Path(directory, SUMMARY))
        except (OSError, ValueError):
            return None
        if not isinstance(summary, dict):
            return None
        if summary.get("imported"):
            return "imported"
        start = self.run(f"results/{run.start_directory}") if run.start_directory else None
        same = summary.get("config_hash") == run.hash and os.path.exists(f"results/{run.hash_file}")
        return "trained" if same and (start is None or self.kept(start, forced)) else None

    def write_run_yaml(self, directory: str) -> None:
        """Write the `run.yaml` of a run that is to be trained, also if it was trained before with other settings.

        The training writes it again, and waits until it is on disk: hundreds of waits here would delay all jobs.
        """
        Path(directory).mkdir(parents=True, exist_ok=True)
        write_text(Path(directory, "run.yaml"), self.run_yaml(directory), lasting=False)

    @cached_property
    def shapes(self) -> dict[str, list[Run]]:
        return shapes(self.runs.values())

    def failed_rehearsals(self, shape: str) -> int:
        """How often the rehearsal of a shape has failed."""
        return failures(Path("results", self.scale, NAME, shape))

    @cached_property
    def papers(self) -> list[str]:
        return [paper for paper in self.suite.papers if self._runs(paper)]

    @property
    def plan_hash(self) -> str:
        """Hash of everything from which the costs of the runs are computed."""
        return _hash(f"{self.run_yaml(directory)}{run.resources!r}" for directory, run in self.runs.items())

    @property
    def words_hash(self) -> str:
        """Hash of the whole configuration of the papers and their runs."""
        papers = (repr(self.suite.papers[paper]) for paper in self.papers)
        return _hash(chain(papers, map(self.run_yaml, self.runs)))

    def run_files(self, paper: str) -> list[str]:
        return _files(self._runs(paper))

    def labels(self, paper: str) -> list[str]:
        return [run.label for run in self._runs(paper)]

    def audited(self, paper: str) -> list[str]:
        """The published values, claims, missing items and logs of a paper, as configured.

        With the runs of which values were published: what follows from a configuration is computed at their scale.
        """
        declared = self.suite.papers[paper]
        compared = *declared.published_beside(self.scale), *declared.claims_at(self.scale)
        parts = (*compared, *declared.missing, declared.logs)
        of = dict.fromkeys(
            (value.scale, value.experiment, value.series) for value in declared.published if value.of is None
        )
        hashes = [run.hash for scale, *series in of for run in self.suite.runs(paper, scale, *series)]
        return [*(part.model_dump_json() for part in parts), *hashes]

    def published_logs(self, paper: str) -> list[str]:
        """The published logs of a paper that have been imported, which only the audit at the published scale reads."""
        files = Path("results/logs", paper).glob("*.json") if self.scale == "paper" else ()
        return sorted(map(str, files))

    def item_results(self, paper: str, item: str) -> list[str]:
        """The files of its runs that an item reads: all that training writes, or none for a kind without training."""
        runs = self._shown(paper, item)
        return [] if KindOptions.named(self._item(paper, item).kind).planned else _files(runs)

    def item_code(self, paper: str, item: str) -> list[str]:
        """The source files that draw an item: its kind, what all share, cost models, formulas, forms of numbers."""
        others = set(KindOptions.names()) - {self._item(paper, item).kind}
        drawing = [file for file in code("render", "render/options") if Path(file).stem not in others]
        return [*drawing, *code(*PLANNING), METRICS, *_SHARED]

    def item_text(self, paper: str, item: str) -> str:
        """The configuration of an item, of the runs that it shows, and of the values published for them."""
        runs = self._shown(paper, item)
        shown = {run.id: (run.label, run.hash) for run in runs}
        references, declared = self.suite.references(paper, item, self.scale), self.suite.papers[paper]
        at_paper_scale = [run.hash for run in references]
        experiments = {run.experiment for run in (*runs, *references)}
        known = [value for value in declared.published_beside(self.scale) if value.experiment in experiments]
        settings = [entry.model_dump_json() for entry in (self._item(paper, item), *declared.times, *known)]
        return f"{settings} {shown} {at_paper_scale}"

    def item_files(self, paper: str) -> list[str]:
        is_figure = self.suite.papers[paper].is_figure
        return [
            f"figures/{self.scale}/{paper}/{item}{suffix}"
            for item in self.suite.items(paper, self.scale)
            for suffix in (FIGURE_FILES if is_figure(item) else TABLE_FILES)
        ]

    def paper_files(self, paper: str) -> list[str]:
        """All files of a paper, including those of its runs, so that a deleted one is made again."""
        runs = self._runs(paper)
        if not runs:
            return []
        hashes = [f"results/{run.hash_file}" for run in runs]
        results = [f"results/{self.scale}/{paper}/{name}" for name in ("collected.parquet", "audit.json")]
        return [*hashes, *_files(runs), *results, *self.item_files(paper)]

    def _runs(self, paper: str) -> list[Run]:
        return self.suite.runs(paper, self.scale)

    def _item(self, paper: str, item: str) -> Item:
        return self.suite.papers[paper].item_at(item, self.scale)

    def _shown(self, paper: str, item: str) -> list[Run]:
        """The runs that an item shows; a kind that shows none exists at every scale."""
        if item not in self.suite.items(paper, self.scale):
            others = [scale for scale in self.suite.scales if item in self.suite.items(paper, scale)]
            raise ConfigError([f"{paper} {item} has no runs at scale {self.scale}, but at {' and '.join(others)}"])
        return self.suite.item_runs(paper, item, self.scale)


def prefer_this_python() -> None:
    """Let `python` in a rule be the interpreter that runs Snakemake, even if no environment is activated."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def chosen_scale(config: Mapping[str, object], suite: Suite) -> str:
    """The scale requested by `--config`. Raises ConfigError for an unknown scale or any other key."""
    scale = str(config.get("scale", "smoke"))
    if set(config) - {"scale"} or scale not in suite.scales:
        allowed, near = "|".join(suite.scales), suggestion(scale, suite.scales)
        raise ConfigError([f"--config takes scale={allowed} and nothing else, found {dict(config)}{near}"])
    return scale


def why_not_made(target: str, suite: Suite) -> str:
    """Why no rule makes a target: the part of its name that is not declared, and the most similar name that is."""
    try:
        match target.split("/"):
            case [name]:
                return f"target: {not_among(name, suite.places_of(name) or [*suite.papers, *TARGETS])}"
            case ["figures", scale, paper, file]:
                suite.items(paper, scale)
                item, declared = Path(file).stem, suite.papers[paper]
                if item not in declared.items:
                    return f"{paper}: item: {not_among(item, declared.items)}"
                made = FIGURE_FILES if declared.is_figure(item) else TABLE_FILES
                return f"{paper} {item}: {not_among(Path(file).suffix, made)}"
            case ["results", scale, paper, experiment, series, seed, *_]:
                seeds = [f"seed{run.seed}" for run in suite.runs(paper, scale, experiment, series)]
                return f"{paper}/{experiment}/{series} at scale {scale}: {not_among(seed, seeds)}"
    except ConfigError as error:
        return str(error)
    return "nothing of this name is declared"


def names_of_runs(suite: Suite) -> dict[str, str]:
    """Patterns of the names in a run's directory, so that a typo in a target matches no rule."""
    experiments = [experiment for paper in suite.papers.values() for experiment in paper.experiments.values()]
    return {
        "scale": one_of(suite.scales),
        "paper": one_of(suite.papers),
        "experiment": one_of(experiment.id for experiment in experiments),
        "series": one_of(series for experiment in experiments for series in experiment.series),
        "seed": "[0-9]+",
        "hash": "[0-9a-f]{16}",
    }


def one_of(declared: Iterable[str]) -> str:
    """The pattern that matches the declared names."""
    return "|".join(sorted(set(declared)))


def one_item(suite: Suite, kind: Literal["figures", "tables"]) -> str:
    """The pattern that matches the declared figures or tables, each within its own paper; without any, nothing."""
    items = [(paper.id, item.id) for paper in suite.papers.values() for item in getattr(paper, kind)]
    return "|".join(f"(?<=/{paper}/){item}" for paper, item in items) or "(?!)"


def train_anew(outputs: Iterable[Iterable[str]], forced: Collection[str], all_forced: bool) -> None:
    """Let the runs train from their first step that Snakemake was told to make again, if they have results.

    `outputs` are the files of each training that Snakemake will start, `forced` the rules and files that it is to make
    in any case (`-R`, `-f`). Otherwise a forced training would find its last checkpoint, and publish that again.
    """
    for files in map(list, outputs):
        if all_forced or "train" in forced or not set(files).isdisjoint(forced):
            state.ask_anew(Path(files[0]).parent)


def data_files(run: Run) -> list[str]:
    """The record of the data set that a run reads, if that has to be converted first."""
    suffix = f".{run.data.format}" if "format" in run.data.options else ""
    return [f"results/data/{run.data.name}{suffix}.json"] if run.data.component.is_prepared else []


def start_files(run: Run) -> list[str]:
    """The summary of the run from whose model a run starts, if it starts from one."""
    return [f"results/{run.start_directory}/summary.json"] if run.start_directory else []


def gpus_per_node(run: Run) -> str | None:
    """GPUs per node in Slurm's notation: a total could be split unevenly over the nodes."""
    gpus = run.resources.gpus_per_node
    return f"gpu:{gpus}" if gpus else None


def srun_nodes(run: Run) -> int | None:
    """Number of nodes, each with one srun task; None for a single node, where runs can be packed."""
    return run.resources.nodes if run.resources.nodes > 1 else None


def code(*rooms: str) -> list[str]:
    """The source files of a cheap step, which is repeated when one of them changes."""
    return sorted(str(file) for room in rooms for file in SOURCE.glob(f"*/{room}/*.*"))


def _files(runs: Iterable[Run]) -> list[str]:
    return [f"results/{run.directory}/{name}" for run in runs for name in RUN_FILES]


def _hash(texts: Iterator[str]) -> str:
    return hashlib.sha256("".join(texts).encode()).hexdigest()
