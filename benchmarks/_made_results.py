"""A paper with many runs, and results of them that keep every rule of a run's folder, made without training."""

import math
from pathlib import Path
from shutil import copytree

import numpy as np

from resync.base.text_tables import csv_text
from resync.papers.paper import load_suite
from resync.papers.plan import volume
from resync.runs.metrics.registry import BEST, EVALUATED, METRICS
from resync.runs.results.summary import NAME, digest, text_of
from resync.runs.run import Run

ROOT = Path(__file__).parents[1]
SERIES, SEEDS = 20, 500
EPOCHS, SAMPLED = 40, 44
"""With 14 and 8 values in a row of the two tables and some of the summary, a run has about a thousand values."""
PARAMETERS = 4810
ITEM = "curves"


def write(folder: Path, series: int, seeds: int) -> None:
    """Write `folder`/configs with the paper `made`, and `folder`/results with all runs of its scale `smoke`."""
    configs = folder / "configs"
    copytree(ROOT / "paper_configs/scales", configs / "scales")
    (configs / "made/experiments").mkdir(parents=True)
    (configs / "made/paper.yaml").write_text(_PAPER)
    (configs / "made/claims.yaml").write_text(_CLAIM)
    lines = [
        f"  h{1 + k}: {{label: 'H = {1 + k}', sync: {{name: local, period: {{rule: constant, h: {1 + k}}}}}}}"
        for k in range(series)
    ]
    experiment = _EXPERIMENT.format(series="\n".join(lines), seeds=list(range(seeds)), epochs=EPOCHS)
    (configs / "made/experiments/digits.yaml").write_text(experiment)
    for run in load_suite(configs).runs("made", "smoke"):
        _write_run(run, folder / "results")


def _write_run(run: Run, results: Path) -> None:
    directory = results / run.directory
    directory.mkdir(parents=True)
    tables = _tables(run)
    texts = {name: csv_text(rows, list(rows[0])) for name, rows in tables.items()}
    for name, text in texts.items():
        (directory / name).write_text(text)
    (directory / "run.yaml").write_text(run.to_yaml())
    digests = {name: digest(text.encode()) for name, text in texts.items()}
    (directory / NAME).write_text(text_of(_summary(run, tables["metrics.csv"]), digests))


def _tables(run: Run) -> dict[str, list[dict[str, float]]]:
    noise = np.random.default_rng([run.seed, len(run.series)]).normal(0, 0.2, (4, EPOCHS + 1)).tolist()
    total = volume(run)
    evaluations = [
        {
            "step": epoch * run.steps_per_epoch, "epoch": float(epoch), "round": total.rounds * epoch // EPOCHS,
            "h": 1, "lr": 0.1, "train_loss": math.nan if epoch == 0 else 2 / (1 + epoch) + abs(noise[0][epoch]),
            "val_loss": 2 / (1 + epoch) + abs(noise[1][epoch]), "val_top1": 90 - 80 / (1 + epoch) + noise[2][epoch],
            "train_top1": math.nan if epoch == 0 else 90 - 80 / (1 + epoch) + noise[3][epoch],
            "bytes_sent": 4 * PARAMETERS * total.rounds * epoch // EPOCHS,
            "volume_percent": total.volume_percent if epoch else 0.0,
            "training_seconds": 0.5 * epoch, "communication_seconds": 0.1 * epoch, "evaluation_seconds": 0.01 * epoch,
        }
        for epoch in range(EPOCHS + 1)
    ]  # fmt: skip
    sampled = [
        {
            "step": 1 + 4 * k, "epoch": (1 + 4 * k) / run.steps_per_epoch, "round": k, "h": 1, "lr": 0.1,
            "step_loss": 2 / (1 + k), "step_data_seconds": 1e-4, "step_compute_seconds": 6e-3,
            "step_communication_seconds": 1e-3, "step_bytes": 4 * PARAMETERS,
        }
        for k in range(SAMPLED)
    ]  # fmt: skip
    return {"metrics.csv": evaluations, "steps.csv": sampled}


def _summary(run: Run, rows: list[dict[str, float]]) -> dict[str, object]:
    last = rows[-1]
    return {
        "status": "finished", "run": run.id, "scale": run.scale, "seed": run.seed, "config_hash": run.hash,
        "steps": last["step"], "rounds": last["round"], "volume_percent": last["volume_percent"],
        "bytes_sent": last["bytes_sent"], "wire_bytes": 0, "parameters": PARAMETERS,
        "final": {name: last[name] for name in last if name in BEST or name in EVALUATED},
        "best": {name: METRICS[name].best_of(row[name] for row in rows) for name in last if name in BEST},
        "seconds": {clock: last[f"{clock}_seconds"] for clock in ("training", "communication", "evaluation")}
        | {"wall": 60.0},
        "launch": {"world_size": 1, "workers": run.workers, "device": "cpu", "host": "host", "threads": 1},
        "diverged": None, "resumed_from": [],
    }  # fmt: skip


_EXPERIMENT = """\
expect: Nothing; made to measure the time of reading many runs.
base:
  data: {{name: digits}}
  model: {{name: mlp, hidden: [64]}}
  workers: 8
  batch_size: 128
  epochs: {epochs}
  optimizer: {{name: sgd, momentum: 0.9}}
  schedule: {{name: constant, lr: 0.1}}
series:
{series}
regime: {{rates: shared}}
scales:
  smoke:
    seeds: {seeds}
"""
_PAPER = """\
title: A paper with many runs
authors: [Nobody]
venue: Made
figures:
  - id: curves
    kind: accuracy_curves
    title: Accuracy
    series: [digits]
"""
_CLAIM = """\
- id: h1_over_h2
  statement: H = 1 is more accurate than H = 2.
  experiment: digits
  better: h1
  than: h2
  metric: val_top1
  direction: higher
  at_least: 0
  confidence: 0.95
  scales: [smoke]
  status: verified
  source: made
"""
