# What the rules share: which runs exist and which files they make. Anything with logic belongs to the package.
import hashlib
import sys
from functools import cache

from snakemake.exceptions import WorkflowError

from resync.config.components import component

RUN = "results/{scale}/{paper}/{experiment}/{series}/seed{seed}"
RUN_FILES = "metrics.csv", "steps.csv", "summary.json"
FIGURE_FILES = ".pdf", ".png"
TABLE_FILES = ".pdf", ".png", ".md", ".tex", ".csv"

if set(config) - {"scale"} or SCALE not in SUITE.scales:
    raise WorkflowError(
        f"--config takes scale={'|'.join(SUITE.scales)} and nothing else, found {dict(config)}"
    )

# `python` in a rule is the one that runs Snakemake, also where no environment was activated.
if not workflow.deployment_settings.deployment_method:
    shell.prefix(f"set -euo pipefail; export PATH={Path(sys.executable).parent}:$PATH; ")


def one_of(names):
    """A wildcard constraint from declared names: a typo in a target matches no rule."""
    return "|".join(sorted(set(names)))


def one_item_of(group):
    """The same for `figures` or `tables`, each within its own paper; where none are declared, nothing matches."""
    items = [f"(?<=/{paper.id}/){item}" for paper in SUITE.papers.values() for item in getattr(paper, group)]
    return "|".join(items or ["(?!)"])


@cache
def runs(paper, scale):
    """The runs of a paper by directory."""
    return {f"results/{run.directory}": run for run in SUITE.runs(paper, scale)}


def run_of(wildcards):
    """The run that a job trains."""
    directory = RUN.format(**wildcards)
    if directory not in runs(wildcards.paper, wildcards.scale):
        raise WorkflowError(f"paper_configs declares no run {directory}")
    return runs(wildcards.paper, wildcards.scale)[directory]


def data_files(wildcards):
    """The record of the data set that a run reads, if it has to be converted first."""
    data = run_of(wildcards).data
    loader = f".{data.loader}" if "loader" in data.options else ""
    return f"results/data/{data.name}{loader}.json" if data.component.is_prepared else []


def start_files(wildcards):
    """What the run that a job starts from has written, if it starts from one."""
    directory = run_of(wildcards).start_directory
    return f"results/{directory}/summary.json" if directory else []


def gpus_per_node(wildcards):
    """GPUs as Slurm counts them on every node of a job: a total would be split unevenly."""
    gpus = run_of(wildcards).resources.gpus_per_node
    return f"gpu:{gpus}" if gpus else None


def srun_nodes(wildcards):
    """Over several nodes, their number, and that of srun tasks: one torchrun a node. Runs of one node can be packed."""
    nodes = run_of(wildcards).resources.nodes
    return nodes if nodes > 1 else None


def run_files(runs):
    """What training writes for these runs."""
    return [f"results/{run.directory}/{name}" for run in runs for name in RUN_FILES]


def papers(scale):
    """The papers with runs at a scale."""
    return [paper for paper in SUITE.papers if runs(paper, scale)]


def all_runs(scale):
    """The runs of all papers at a scale."""
    return [run for paper in SUITE.papers for run in runs(paper, scale).values()]


def audited(wildcards):
    """The published values and claims of a paper as the configuration has them."""
    paper = SUITE.papers[wildcards.paper]
    return [each.model_dump_json() for each in (*paper.published, *paper.claims)]


def code(*rooms):
    """The source of a cheap step: where it changes, the step is done again."""
    return sorted(file for room in rooms for file in Path("src/resync", room).glob("*.*"))


def words_hash(wildcards):
    """Changes with anything that the configuration says about the papers of a scale."""
    said = [repr(SUITE.papers[paper]) for paper in papers(wildcards.scale)]
    return hashlib.sha256("".join(said).encode()).hexdigest()


def item(wildcards):
    """The declared figure or table that a job draws."""
    return SUITE.papers[wildcards.paper].items[wildcards.item]


def item_runs(wildcards):
    """The runs that a figure or table shows."""
    runs = SUITE.item_runs(wildcards.paper, wildcards.item, wildcards.scale)
    if not runs:
        raise WorkflowError(f"{wildcards.paper} {wildcards.item} has no runs at scale {wildcards.scale}")
    return runs


def item_results(wildcards):
    """What of its runs it shows: all that training writes, or nothing for a kind that draws configurations only."""
    kind = component("render", item(wildcards).kind)
    return [] if kind.planned else run_files(item_runs(wildcards))


def item_code(wildcards):
    """The source that draws it: its kind, what all kinds share (a kind has a declaration beside it), and the models."""
    shared = [file for file in code("render") if Path(file).stem not in names("render")]
    return [f"src/resync/render/{item(wildcards).kind}.py", *shared, *code("plan")]


def item_text(wildcards):
    """What the configuration says about it, about what it shows, and what was published of that."""
    shown = {run.id: (run.label, run.hash) for run in item_runs(wildcards)}
    at_paper_scale = [run.hash for run in SUITE.item_runs(wildcards.paper, wildcards.item, "paper")]
    experiments = {run.experiment for run in item_runs(wildcards)}
    known = [
        value.model_dump_json()
        for value in SUITE.papers[wildcards.paper].published
        if value.experiment in experiments
    ]
    return f"{item(wildcards).model_dump_json()} {shown} {at_paper_scale} {known}"


def item_files(paper, scale):
    """The files of the figures and tables of a paper that have runs at a scale."""
    for item in SUITE.items(paper, scale):
        suffixes = FIGURE_FILES if item in SUITE.papers[paper].figures else TABLE_FILES
        yield from (f"figures/{scale}/{paper}/{item}{suffix}" for suffix in suffixes)


def paper_files(paper, scale):
    """All that a paper makes at a scale. The runs are named too, so that a deleted one is made again."""
    if not runs(paper, scale):
        return []
    results = [f"results/{scale}/{paper}/{name}" for name in ("collected.parquet", "audit.json")]
    return [*run_files(SUITE.runs(paper, scale)), *results, *item_files(paper, scale)]
