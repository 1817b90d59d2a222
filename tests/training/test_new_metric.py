"""A new metric needs its entry in the registry and the code that computes it: nothing else.

A copy of the package gets `val_brier` by the patch of docs/extend.md. The metric is then followed through a training,
the collected table, a figure, a table and the audit.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from launched import in_clone

import resync

PAGE = (Path(__file__).parents[2] / "docs/extend.md").read_text()
[PATCH] = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)

CONFIGS = {
    "scales/smoke.yaml": """
data: {name: digits}
model: {name: mlp, hidden: [16]}
workers: 2
batch_size: 64
epochs: 2
steps_per_epoch: 5
schedule: {name: constant, lr: 0.1}
seeds: [0, 1]
device: cpu
log: {wandb: disabled}
""",
    "scales/mini.yaml": "seeds: [0]",
    "scales/gpu.yaml": "seeds: [0]",
    "scales/paper.yaml": "seeds: [0]",
    "toy/experiments/digits.yaml": """
expect: the probabilities come closer to the labels
base: {optimizer: {name: sgd}, evaluation: {also: workers}}
series:
  local: {label: Local SGD, sync: {name: local, period: {rule: constant, h: 2}}}
scales: {smoke: {}}
""",
    "toy/paper.yaml": """
title: A paper with a new metric
authors: [Ada Lovelace]
venue: Tests
figures:
  - {id: curves, kind: training_curves, title: Curves, series: [digits], options: {metrics: [val_top1, val_brier]}}
tables:
  - {id: table1, kind: metrics_table, title: Ends, series: [digits],
     options: {metrics: [val_brier, best_val_brier, worker_val_brier_max]}}
""",
    "toy/published.yaml": """
- {id: brier, item: table1, experiment: digits, series: local, metric: val_brier, value: 1.1, unit: "1",
   status: verified, source: made up, scale: smoke}
""",
    "toy/claims.yaml": "[]",
}

FOLLOW = """
from pathlib import Path
from resync.papers.audit import audit, write
from resync.papers.paper import load_suite
from resync.papers.render.item import render
from resync.runs.results.collect import collect
from resync.runs.train import train

suite, results = load_suite(Path("configs")), Path("results")
for run in suite.runs("toy", "smoke"):
    train(run, results / run.directory)
collect(suite.runs("toy", "smoke"), results, Path("collected"))
for item in ("curves", "table1"):
    render(suite, "toy", item, "smoke", results, Path("figures"))
write(audit(suite, "smoke", results), Path("audit"))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the patched package has trained, collected, drawn and audited."""
    folder = tmp_path_factory.mktemp("new_metric")
    shutil.copytree(Path(resync.__file__).parent, folder / "src/resync")
    subprocess.run(["git", "apply", "-"], cwd=folder, input=PATCH, text=True, check=True)
    for name, text in CONFIGS.items():
        (folder / "configs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "configs" / name).write_text(text)
    code, output = in_clone(folder, FOLLOW)
    assert code == 0, output
    return folder


def test_it_is_trained_and_collected(folder: Path):
    lines = (folder / "collected.csv").read_text().splitlines()
    assert sum(",evaluation," in line and ",val_brier," in line for line in lines) == 2 * 3
    assert sum(",summary," in line and ",best_val_brier," in line for line in lines) == 2


def test_it_is_drawn_and_tabled(folder: Path):
    assert (folder / "figures/smoke/toy/curves.pdf").stat().st_size > 1000
    text = (folder / "figures/smoke/toy/table1.md").read_text()
    assert "Validation Brier score" in text
    assert "Best validation Brier score" in text
    assert "Workers' largest validation Brier score" in text
    assert "| 1.1 |" in text


def test_it_is_audited_by_its_direction_and_tolerance(folder: Path):
    content = json.loads((folder / "audit/audit.json").read_text())
    [row] = [row for row in content["rows"] if row["id"] == "brier"]
    assert row["tolerance"] == 0.01
    assert row["tolerance_basis"] == "the metric's default"
    assert 0.5 < row["ours"]["mean"] < 1
    assert row["verdict"] == "open"
