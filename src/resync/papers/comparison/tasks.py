"""The standing tasks: series of the papers here, whose runs the archive has."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from resync.papers.archive.unpack import scales_of, unpack
from resync.papers.paper import Suite
from resync.runs.results.runs import RunState, state_of
from resync.runs.run import Run


class Task(NamedTuple):
    """Series of a paper, as `experiment/series`, the first of which has the settings that all share but for two.

    These are the algorithm and the learning rate. A series that does not exist at a scale is left out there. `rates`
    says how far the learning rates of the series were tuned, beside one that is.
    """

    paper: str
    series: tuple[str, ...]
    rates: str


TASKS = {
    "images": Task(
        "slowmo",
        tuple(f"cifar10_resnet18/{name}" for name in ("local", "ar", "local_slowmo", "sgp", "osgp", "sgp_slowmo")),
        "tuned for all-reduce, local steps and gossip each",
    ),
    "captions": Task(
        "slowmo",
        (*(f"wmt16_transformer/{name}" for name in ("local", "local_slowmo", "sgp_slowmo_tau12")),
         *(f"small_adam_steps/{name}_larger_lr" for name in ("ar", "local", "sgp"))),
        "not tuned: one for all series of an experiment",
    ),
    "characters": Task(
        "outer_optimizers",
        ("grid/average_k8_h20", "grid/both_k8_h20",
         *(f"methods/{name}" for name in ("allreduce", "slowmo", "palsgd", "streaming_diloco", "desloc", "noloco"))),
        "tuned for all-reduce, averages and outer steps each, not for every method",
    ),
}  # fmt: skip
PAPERS = tuple(dict.fromkeys(task.paper for task in TASKS.values()))
SCALES = ("smoke", "mini")


def others_of(suite: Suite, scale: str, results: Sequence[Path]) -> dict[str, list[list[RunState]]]:
    """By task the states of each series, each run in the first of the folders of results in which it has ended."""

    def state(run: Run) -> RunState:
        states = [state_of(run, folder) for folder in results]
        return next((candidate for candidate in states if candidate.has_ended), states[0])

    others: dict[str, list[list[RunState]]] = {}
    for name, task in TASKS.items():
        places = [series.split("/") for series in task.series]
        runs = [suite.runs(task.paper, scale, *place) for place in places]
        others[name] = [list(map(state, of_series)) for of_series in runs if of_series]
    return others


@contextmanager
def with_archive(results: Path, scale: str) -> Iterator[list[Path]]:
    """The folder `results`, and for the time of the block one with the runs of the archive in it, if that has any."""
    archive = results / "reference"
    with TemporaryDirectory() as folder:
        if scale in scales_of(archive):
            for paper in PAPERS:
                unpack(archive, scale, Path(folder), paper)
        yield [results, Path(folder)]
