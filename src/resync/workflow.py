"""The files that the workflow makes of the papers, and what decides that each is made again.

The rules call this with the names in a target. Paths are relative to the repository, where Snakemake runs.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from resync.config import ConfigError, Run, Suite
from resync.config.paper import Item
from resync.config.parts import KindOptions

RUN = "results/{scale}/{paper}/{experiment}/{series}/seed{seed}"
"""Directory of the run with these names."""
RUN_FILES = ("metrics.csv", "steps.csv", "summary.json")
"""What training writes into it."""
FIGURE_FILES = (".pdf", ".png")
TABLE_FILES = (".pdf", ".png", ".md", ".tex", ".csv")
SOURCE = Path("src/resync")


class Targets:
    """Files of one scale. Asking for something that is not declared raises ConfigError."""

    def __init__(self, suite: Suite, scale: str) -> None:
        self.suite, self.scale = suite, scale

    @cached_property
    def runs(self) -> dict[str, Run]:
        """The runs of all papers by directory."""
        return {f"results/{run.directory}": run for paper in self.suite.papers for run in self._runs(paper)}

    def run(self, directory: str) -> Run:
        """The run of a directory."""
        if directory not in self.runs:
            raise ConfigError([f"paper_configs declares no run {directory}"])
        return self.runs[directory]

    @cached_property
    def papers(self) -> list[str]:
        """The papers with runs."""
        return [paper for paper in self.suite.papers if self._runs(paper)]

    @property
    def plan_hash(self) -> str:
        """Changes with anything that the costs of the runs are computed from."""
        return _hash(f"{run.to_yaml()}{run.resources!r}" for run in self.runs.values())

    @property
    def words_hash(self) -> str:
        """Changes with anything that the configuration says about the papers."""
        return _hash(repr(self.suite.papers[paper]) for paper in self.papers)

    def run_files(self, paper: str) -> list[str]:
        """What training writes for the runs of a paper."""
        return _files(self._runs(paper))

    def labels(self, paper: str) -> list[str]:
        """What figures call the runs of a paper."""
        return [run.label for run in self._runs(paper)]

    def audited(self, paper: str) -> list[str]:
        """The published values and claims of a paper as the configuration has them."""
        declared = self.suite.papers[paper]
        return [each.model_dump_json() for each in (*declared.published, *declared.claims)]

    def item_results(self, paper: str, item: str) -> list[str]:
        """What an item reads of its runs: all that training writes, or nothing for a kind that trains nothing."""
        runs = self._shown(paper, item)
        return [] if KindOptions.named(self._item(paper, item).kind).planned else _files(runs)

    def item_code(self, paper: str, item: str) -> list[str]:
        """The source that draws an item: its kind, what all kinds share, and the models of costs and formulas."""
        kinds, kind = set(KindOptions.names()), self._item(paper, item).kind
        shared = [file for file in code("render", "render/options") if Path(file).stem not in kinds]
        own = [f"{SOURCE}/render/{kind}.py", f"{SOURCE}/render/options/{kind}.py"]
        return [*own, *shared, *code("plan", "formulas")]

    def item_text(self, paper: str, item: str) -> str:
        """What the configuration says about an item, about what it shows, and what was published of that."""
        runs = self._shown(paper, item)
        shown = {run.id: (run.label, run.hash) for run in runs}
        at_paper_scale = [run.hash for run in self.suite.item_runs(paper, item, "paper")]
        experiments = {run.experiment for run in runs}
        published = self.suite.papers[paper].published
        known = [value.model_dump_json() for value in published if value.experiment in experiments]
        return f"{self._item(paper, item).model_dump_json()} {shown} {at_paper_scale} {known}"

    def item_files(self, paper: str) -> list[str]:
        """The files of the figures and tables of a paper."""
        figures = self.suite.papers[paper].figures
        return [
            f"figures/{self.scale}/{paper}/{item}{suffix}"
            for item in self.suite.items(paper, self.scale)
            for suffix in (FIGURE_FILES if item in figures else TABLE_FILES)
        ]

    def paper_files(self, paper: str) -> list[str]:
        """All that a paper makes. The files of runs are named too, so that a deleted one is made again."""
        runs = self._runs(paper)
        if not runs:
            return []
        # Not run.yaml: to Snakemake a run whose configuration has to be written is a run to be trained.
        hashes = [f"results/{run.hash_file}" for run in runs]
        results = [f"results/{self.scale}/{paper}/{name}" for name in ("collected.parquet", "audit.json")]
        return [*hashes, *_files(runs), *results, *self.item_files(paper)]

    def _runs(self, paper: str) -> list[Run]:
        return self.suite.runs(paper, self.scale)

    def _item(self, paper: str, item: str) -> Item:
        return self.suite.papers[paper].items[item]

    def _shown(self, paper: str, item: str) -> list[Run]:
        """The runs that an item shows; a kind that shows none exists at every scale."""
        if item not in self.suite.items(paper, self.scale):
            raise ConfigError([f"{paper} {item} has no runs at scale {self.scale}"])
        return self.suite.item_runs(paper, item, self.scale)


def chosen_scale(config: Mapping[str, object], suite: Suite) -> str:
    """The scale that `--config` asks for. Raises ConfigError for anything else in it."""
    scale = str(config.get("scale", "smoke"))
    if set(config) - {"scale"} or scale not in suite.scales:
        allowed = "|".join(suite.scales)
        raise ConfigError([f"--config takes scale={allowed} and nothing else, found {dict(config)}"])
    return scale


def names_of_runs(suite: Suite) -> dict[str, str]:
    """Patterns of the names in a run's directory: a typo in a target matches no rule."""
    experiments = [each for paper in suite.papers.values() for each in paper.experiments.values()]
    return {
        "scale": one_of(suite.scales),
        "paper": one_of(suite.papers),
        "experiment": one_of(experiment.id for experiment in experiments),
        "series": one_of(series for experiment in experiments for series in experiment.series),
        "seed": "[0-9]+",
        "hash": "[0-9a-f]{16}",
    }


def one_of(declared: Iterable[str]) -> str:
    """The pattern of declared names."""
    return "|".join(sorted(set(declared)))


def one_figure(suite: Suite) -> str:
    """The pattern of declared figures, each within its own paper."""
    return _one_item((paper.id, figure) for paper in suite.papers.values() for figure in paper.figures)


def one_table(suite: Suite) -> str:
    """The pattern of declared tables, each within its own paper."""
    return _one_item((paper.id, table) for paper in suite.papers.values() for table in paper.tables)


def data_files(run: Run) -> list[str]:
    """The record of the data set that a run reads, if it has to be converted first."""
    suffix = f".{run.data.format}" if "format" in run.data.options else ""
    return [f"results/data/{run.data.name}{suffix}.json"] if run.data.component.is_prepared else []


def start_files(run: Run) -> list[str]:
    """What the run that a run starts from has written, if it starts from one."""
    return [f"results/{run.start_directory}/summary.json"] if run.start_directory else []


def gpus_per_node(run: Run) -> str | None:
    """GPUs as Slurm counts them on every node of a job: a total would be split unevenly."""
    gpus = run.resources.gpus_per_node
    return f"gpu:{gpus}" if gpus else None


def srun_nodes(run: Run) -> int | None:
    """Number of nodes and of srun tasks, one torchrun on each; None on one node, where runs can be packed."""
    return run.resources.nodes if run.resources.nodes > 1 else None


def code(*rooms: str) -> list[str]:
    """The source of a cheap step: where it changes, the step is done again."""
    return sorted(str(file) for room in rooms for file in (SOURCE / room).glob("*.*"))


def _one_item(items: Iterable[tuple[str, str]]) -> str:
    """Where none are declared, nothing matches."""
    return "|".join(f"(?<=/{paper}/){item}" for paper, item in items) or "(?!)"


def _files(runs: Iterable[Run]) -> list[str]:
    return [f"results/{run.directory}/{name}" for run in runs for name in RUN_FILES]


def _hash(texts: Iterator[str]) -> str:
    return hashlib.sha256("".join(texts).encode()).hexdigest()
