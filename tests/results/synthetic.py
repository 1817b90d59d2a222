"""Result directories that keep the contract, made without training."""

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from resync.papers.paper import Suite
from resync.papers.plan import Cost, cost
from resync.runs.metrics.registry import BEST, EVALUATED, METRICS, required_columns
from resync.runs.results.collect import collect
from resync.runs.results.summary import DIGESTS, NAME, digest, publish, text_of
from resync.runs.run import Run
from resync.workers.formulas.periods import rounds

PARAMETERS = 4810
BEST_TOP1 = {"parallel": 97.2, "h4": 96.5, "qsr": 97.4, "sgp": 96.9}
SECONDS_PER_ROUND = {"parallel": 0.004, "h4": 0.004, "qsr": 0.004, "sgp": 0.0015}
SECONDS_PER_STEP = 0.006
_COSTS: dict[str, Cost] = {}


def planned(run: Run) -> Cost:
    """The cost of a run, computed once: at paper scale it takes a while."""
    if run.hash not in _COSTS:
        _COSTS[run.hash] = cost(run, PARAMETERS)
    return _COSTS[run.hash]


def write_run(run: Run, results: Path, **changes: Any) -> Path:
    """Write what training would leave of `run`: smooth made-up curves, exact rounds. Returns the directory.

    `changes`: `top1`, the last accuracy; `diverged_at`, a step.
    """
    directory = results / run.directory
    directory.mkdir(parents=True)
    (directory / "run.yaml").write_text(run.to_yaml())
    metrics, steps = tables(run, changes.get("top1"), changes.get("diverged_at"))
    write_csv(directory / "metrics.csv", metrics)
    write_csv(directory / "steps.csv", steps)
    diverged = changes.get("diverged_at") and {"step": changes["diverged_at"], "worker": 3}
    entries = summary(run, metrics, diverged)
    seal(directory, entries)
    return directory


def write_short_run(run: Run, results: Path, top1: float, **changes) -> None:
    """A run with two evaluations only: at paper scale, making up every step would take a while."""
    directory = results / run.directory
    directory.mkdir(parents=True)
    (directory / "run.yaml").write_text(run.to_yaml())
    row = {
        "step": 0, "epoch": 0.0, "round": 0, "h": 1, "lr": 0.0, "train_loss": 1.0, "val_loss": 1.0,
        "val_top1": 0.1, "bytes_sent": 0, "volume_percent": 0.0, "training_seconds": 0.0,
        "communication_seconds": 0.0, "evaluation_seconds": 0.0,
    }  # fmt: skip
    expected = planned(run)
    last = row | {"step": run.total_steps, "epoch": 300.0, "round": expected.rounds, "val_top1": top1}
    last |= {"volume_percent": expected.volume_percent, "bytes_sent": 0}
    last |= {name: changes[name] for name in ("volume_percent", "bytes_sent") if name in changes}
    sampled = dict.fromkeys(required_columns("steps"), 0.0) | {"step": 0, "round": 0}
    write_csv(directory / "metrics.csv", [row, last])
    write_csv(directory / "steps.csv", [sampled])
    entries = summary(run, [row, last]) | {"config_hash": changes.get("config_hash", run.hash)}
    seal(directory, entries)


def write_paper_scale(suite: Suite, results: Path, top1: Mapping[str, Sequence[float]], **changes) -> None:
    """Short runs of the first seeds of the toy paper's series with these last accuracies."""
    for series, values in top1.items():
        for run, value in zip(suite.runs("toy", "paper", "vit", series), values, strict=False):
            write_short_run(run, results, value, **changes)


def tables(run: Run, top1: float | None = None, diverged_at: int | None = None) -> tuple[list, list]:
    """The rows of metrics.csv and steps.csv."""
    noise = np.random.default_rng([run.seed, len(run.series)]).normal(0, 0.15, run.total_steps + 1)
    last = top1 if top1 is not None else BEST_TOP1[run.series] + noise[0]
    lr, length = run.lr, rounds(run.period, run.lr, run.total_steps, run.warmup_steps)
    ends = np.cumsum(length)
    metrics, steps = [], []
    for step in range(run.total_steps + 1):
        number = int(np.searchsorted(ends, step, side="right"))
        progress = step / run.total_steps
        broken = diverged_at is not None and step >= diverged_at
        jitter = float(noise[step] * 6 * (1 - progress) ** 2) if 0 < step < run.total_steps else 0.0
        row = {
            "step": step,
            "epoch": step / run.steps_per_epoch,
            "round": number,
            "h": length[min(number, len(length) - 1)],
            "lr": lr(min(step, run.total_steps - 1)),
            "train_loss": math.nan if broken or step == 0 else 2.3 * math.exp(-4 * progress),
        }
        sent = 4 * PARAMETERS * number
        if step and step % run.log.every_steps == 0:
            position = {name: row[name] for name in ("step", "epoch", "round", "h", "lr")}
            clocks = {"step_data_seconds": 1e-4, "step_compute_seconds": SECONDS_PER_STEP}
            clocks |= {"step_communication_seconds": 1e-3, "step_bytes": 4 * PARAMETERS}
            steps.append(position | {"step_loss": row["train_loss"]} | clocks)
        if step % (run.evaluation.every_epochs * run.steps_per_epoch) == 0 or step == diverged_at:
            metrics.append(row | {
                "val_loss": math.nan if broken else 2.3 * math.exp(-3 * progress),
                "val_top1": math.nan if broken else 10 + (last - 10) * (1 - math.exp(-9 * progress)) /
                (1 - math.exp(-9)) + jitter,
                "bytes_sent": sent,
                "volume_percent": 100 * number / step if step else 0.0,
                "training_seconds": SECONDS_PER_STEP * step * (1 + noise[1] / 4)
                + SECONDS_PER_ROUND[run.series] * number,
                "communication_seconds": SECONDS_PER_ROUND[run.series] * number,
                "evaluation_seconds": 0.01 * len(metrics),
            })  # fmt: skip
        if step == diverged_at:
            break
    return metrics, steps


def summary(run: Run, rows: list[dict[str, float]], diverged: dict[str, int] | None = None) -> dict[str, Any]:
    """The entries of summary.json after these evaluations."""
    last = rows[-1]
    return ends(rows) | {
        "status": "diverged" if diverged else "finished",
        "run": run.id,
        "scale": run.scale,
        "seed": run.seed,
        "config_hash": run.hash,
        "steps": last["step"],
        "rounds": last.get("round"),
        "volume_percent": last.get("volume_percent"),
        "bytes_sent": last["bytes_sent"],
        "wire_bytes": 0,
        "parameters": PARAMETERS,
        "seconds": {clock: last.get(f"{clock}_seconds", 1.0) for clock in ("training", "communication", "evaluation")}
        | {"wall": 60.0},
        "parameters_sha256": digest(run.id.encode()),
        "diverged": diverged,
        "resumed_from": [],
        "started": "2026-01-01T00:00:00Z",
        "ended": "2026-01-01T00:00:06Z",
        "launch": {"world_size": 1, "workers": run.workers, "device": "cpu", "host": "host", "threads": 1},
        "versions": {"python": "3.11.7", "torch": "2.13.0", "resync": "0.1.0"},
        "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
    }


def ends(rows: list[dict[str, float]]) -> dict[str, Any]:
    """The final and best values of a summary after these evaluations."""
    last = rows[-1]
    shown = [name for name in last if name in BEST or name in EVALUATED]
    return {
        "final": {name: last[name] if math.isfinite(last[name]) else None for name in shown},
        "best": {name: METRICS[name].best_of(row[name] for row in rows) for name in shown if name in BEST},
    }


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows with full precision."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def edit(file: Path, old: str, new: str) -> None:
    """Replace a text, of which the file has at least one, where it stands first."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def put_log(directory: Path, content: bytes, number: int = 0) -> Path:
    """Lay a wandb log into a run's directory, the `number`-th of them."""
    log = directory / f"wandb/offline-run-20260101_00000{number}-log{number}" / f"run-log{number}.wandb"
    log.parent.mkdir(parents=True)
    log.write_bytes(content)
    return log


def seal(directory: Path, entries: dict[str, Any]) -> None:
    """Write a summary with the digests of the tables as they are now."""
    tables = {name: (directory / name).read_text() for name in ("metrics.csv", "steps.csv")}
    publish(directory, tables, entries)


def rewrite(directory: Path, **entries: Any) -> None:
    """Make it a run that has ended with other entries of its summary, and let metrics.csv say the same.

    Of `final`, entries that are not named stay.
    """
    summary = json.loads((directory / "summary.json").read_text())
    summary |= entries | {"final": summary["final"] | entries.get("final", {})}
    with (directory / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    last = rows[-1] | {"round": summary["rounds"]} | summary["final"]
    last |= {f"{clock}_seconds": value for clock, value in summary["seconds"].items() if clock != "wall"}
    rows[-1] = {name: math.nan if value is None else value for name, value in last.items()}
    write_csv(directory / "metrics.csv", rows)
    reseal(directory, summary)


def reseal(directory: Path, summary: dict[str, Any] | None = None) -> None:
    """Make the tables as they are now those of the summary."""
    entries = summary or json.loads((directory / "summary.json").read_text())
    del entries["sha256"]
    with (directory / "metrics.csv").open(newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    seal(directory, entries | ends(rows))


def resealed(content: str | bytes, change: Callable[[dict[str, Any]], object]) -> str:
    """A summary with other entries, and digests that fit them."""
    summary = json.loads(content)
    change(summary)
    digests = {name: value for name, value in summary.pop(DIGESTS).items() if name != NAME}
    return text_of(summary, digests)


def collected(runs: Iterable[Run], results: Path) -> pd.DataFrame:
    """The exported table of some runs, with the lines on runs without rows in its `attrs`."""
    with TemporaryDirectory() as folder:
        found = collect(runs, results, Path(folder) / "collected")
        table = pd.read_parquet(found.parquet)
    table.attrs.update(missing=found.missing, damaged=found.damaged)
    return table
