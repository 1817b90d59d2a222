"""`resync compare`: an algorithm on the standing tasks, from nothing to the table of differences."""

import csv
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from launched import copy_files, in_clone
from scipy.stats import ttest_rel

from resync.papers.comparison.declared import METRIC
from resync.papers.comparison.drawn import Compared
from resync.papers.comparison.tasks import PAPERS, TASKS
from resync.papers.render.item import Series
from resync.papers.render.style import PALETTE, Style
from resync.runs.results.runs import RunState

ROOT = Path(__file__).parents[2]
COPIED = (
    "Snakefile", "environment.yml", "src", "workflow", "docs/extend.md", "pyproject.toml",
    *(f"paper_configs/{name}" for name in ("scales", *PAPERS)),
    *(f"results/reference/mini/{name}" for name in PAPERS),
)  # fmt: skip
MAIN = "import sys; from resync.tools.cli import main; sys.exit(main({!r}))"
ARCHIVED = """
from pathlib import Path
from resync.papers.archive.pack import pack
from resync.papers.comparison.tasks import PAPERS
from resync.papers.paper import load_suite

pack(load_suite(Path("paper_configs"), papers=PAPERS), "smoke", [Path("results")], Path("results/reference"))
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with an algorithm of its own, and the archive's runs of the standing tasks."""
    clone = tmp_path_factory.mktemp("clone")
    copy_files(ROOT, COPIED, clone)
    code, output = in_clone(clone, MAIN.format(["new", "algorithm", "mine"]))
    assert code == 0, output
    return clone


def loss_of(run: Path) -> float:
    """The validation loss of the last evaluation in a run's folder."""
    with (run / "metrics.csv").open() as file:
        return float(list(csv.DictReader(file))[-1][METRIC])


def table(clone: Path) -> list[dict[str, str]]:
    rows = []
    for task in TASKS:
        with (clone / f"figures/smoke/compare_mine/{task}_differences.csv").open() as file:
            rows += [row | {"task": task} for row in csv.DictReader(file)]
    return rows


@pytest.mark.slow
def test_an_own_algorithm_is_tuned_by_pilots_trained_and_compared(clone: Path):
    code, output = in_clone(clone, MAIN.format(["compare", "mine", "--scale", "smoke"]))
    assert code == 0, output
    results, drawn = clone / "results/smoke", clone / "figures/smoke/compare_mine"
    for task in TASKS:
        pilots = {file.parent: loss_of(file.parent) for file in results.glob(f"compare_mine/{task}_pilot/*/*/run.yaml")}
        best, own = min(pilots, key=pilots.__getitem__), results / f"compare_mine/{task}/mine/seed0"
        assert len({yaml.safe_load((run / "run.yaml").read_text())["schedule"]["max_lr"] for run in pilots}) == 4
        chosen = [yaml.safe_load((run / "run.yaml").read_text()) for run in (best, own)]
        assert chosen[0]["schedule"] == chosen[1]["schedule"]
        assert (drawn / f"{task}.pdf").exists()
    rows = table(clone)
    others = [row for row in rows if row["difference"]]
    assert [row["task"] for row in rows if not row["difference"]] == list(TASKS)
    assert len(others) == 6 + 3 + 8
    for row in others:
        run = results / TASKS[row["task"]].paper / row["experiment"] / row["series"] / "seed0"
        difference = loss_of(run) - loss_of(results / f"compare_mine/{row['task']}/mine/seed0")
        assert float(row["difference"]) == pytest.approx(difference, abs=1e-12)
    assert re.search(r"^images: mine ends with a validation loss of [\d.]+ ", output, re.MULTILINE), output
    assert output.count("n = 1") == len(others)

    # Again, with the runs of the others in an archive only: nothing is trained, and the table is the same.
    code, output = in_clone(clone, ARCHIVED)
    assert code == 0, output
    for paper in PAPERS:
        shutil.rmtree(results / paper)
    before = {file: file.stat().st_mtime_ns for file in results.rglob("summary.json")}
    code, output = in_clone(clone, MAIN.format(["compare", "mine", "--scale", "smoke"]))
    assert code == 0, output
    assert {file: file.stat().st_mtime_ns for file in results.rglob("summary.json")} == before
    assert table(clone) == rows


@pytest.mark.slow
def test_the_archive_has_all_runs_beside_which_an_algorithm_is_trained(clone: Path):
    """And the algorithm has their settings, but for the learning rate."""
    code, output = in_clone(clone, MAIN.format(["compare", "mine", "-n"]))
    assert code == 0, output
    assert re.findall(r"beside (\d+) runs of \d series, 0 to train", output) == ["48", "30", "40"], output
    code, output = in_clone(clone, SAME)
    assert code == 0, output


SAME = """
from pathlib import Path
from resync.papers.comparison.tasks import PAPERS, TASKS
from resync.papers.paper import load_suite

suite = load_suite(Path("paper_configs"), papers=[*PAPERS, "compare_mine"])
for scale in ("smoke", "mini"):
    for task, (paper, (first, *_), _) in TASKS.items():
        names = {"paper", "experiment", "series", "seed", "sync"}
        [theirs, *_] = suite.runs(paper, scale, *first.split("/"))
        pilots = {run.series: run for run in suite.runs("compare_mine", scale, f"{task}_pilot")}
        ours, other = pilots["lr_same"], pilots["lr_twice"]
        assert ours.model_dump(exclude=names) == theirs.model_dump(exclude=names), (scale, task)
        assert other.lr(other.total_steps // 2) == 2 * ours.lr(other.total_steps // 2), (scale, task)
"""


def test_the_interval_of_a_difference_is_that_of_the_paired_t_test():
    losses = {"mine": [1.1, 1.0, 1.3, 1.2], "other": [1.3, 1.1, 1.35, 1.5]}

    def series(name: str) -> Series:
        states = (
            RunState(None, "finished", "", SimpleNamespace(final=lambda _, loss=loss: loss, summary={"seed": seed}))
            for seed, loss in enumerate(losses[name])
        )
        return Series(name, Style(PALETTE[0], "o", (0, ())), tuple(states))

    found = Compared("images", "mini", (), series("mine"), ()).difference(series("other"))
    expected = ttest_rel(losses["other"], losses["mine"]).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(expected))
    assert (found.difference, found.n) == (pytest.approx(0.1625), (4, 4))


def test_missing_data_are_one_line_before_anything_is_trained(clone: Path, tmp_path: Path):
    code, output = in_clone(clone, MAIN.format(["compare", "mine"]), RESYNC_DATA=str(tmp_path), RESYNC_PREPARED="")
    assert code == 2, output
    line = output.splitlines()[-1]
    assert "data missing: cifar10_16, multi30k_en_de, shakespeare_char, allowed: `resync data get" in line
