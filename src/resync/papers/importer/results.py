"""Writing of an imported log as the files of a finished run; values that the log does not have are NaN or null."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from resync.base.files import write_text
from resync.base.text_tables import csv_text
from resync.papers.importer.log import ImportedLog, LogError, Origin, Values
from resync.runs.metrics.registry import BEST, EVALUATED, METRICS, File, columns, required_columns
from resync.runs.results.errors import ResultsError
from resync.runs.results.summary import publish, read_summary
from resync.runs.run import Run

_RESULTS = ("summary.json", "metrics.csv*", "steps.csv*", "checkpoint", "model.pt")


def refuse_to_overwrite(directory: Path) -> None:
    """Raise LogError if a run's folder contains results, finished or not."""
    files = [file.name for pattern in _RESULTS for file in directory.glob(pattern)]
    if files:
        raise LogError(f"{directory}: has results ({', '.join(sorted(files))}), allowed: an empty folder, or --replace")


def refuse_second_seed(directory: Path, origins: Sequence[Origin]) -> None:
    """Raise LogError if another seed of the series was imported from one of these logs: it is the log of one run."""
    for file in sorted(directory.parent.glob("seed*/summary.json")):
        if file.parent == directory:
            continue
        try:
            sources = (read_summary(file).get("imported") or {}).get("sources", [])
            taken = {(source["sha256"], source.get("run")) for source in sources}
        except ResultsError as error:
            raise LogError(f"its sources cannot be compared with those of {file}: {error}") from None
        again = next((origin for origin in origins if (origin.sha256, origin.run) in taken), None)
        if again:
            raise LogError(
                f"{again.name}: was imported as {file.parent} already, allowed: for each seed another run's log"
            )


def write(run: Run, log: ImportedLog, kind: str, origins: Sequence[Origin], directory: Path, replace: bool) -> None:
    """Write run.yaml, metrics.csv, steps.csv and, last, summary.json; `replace` empties the folder first.

    Raises LogError if the log is not that of a complete run; a run that diverged may end early.
    """
    diverged = _diverged_at(log)
    last = log.metrics[-1]
    if diverged is None and last["step"] != run.total_steps:
        ends = f"step {last['step']:g} (epoch {last['epoch']:g})"
        allowed = f"{run.total_steps} ({run.epochs}), the end of {run.id}"
        raise LogError(f"{origins[0].name}: the last evaluation is at {ends}, allowed: {allowed}")
    if replace and directory.exists():
        (directory / "summary.json").unlink(missing_ok=True)  # from here on the run has not finished
        shutil.rmtree(directory)
    write_text(directory / "run.yaml", run.to_yaml())
    write_text(directory / run.hash_file.name, "")
    tables = {"metrics.csv": _csv(log.metrics, "metrics"), "steps.csv": _csv(log.steps, "steps")}
    imported = {
        "format": kind,
        "sources": [asdict(origin) for origin in origins],
        "notes": list(log.notes),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "resync": version("resync-suite"),
    }
    publish(directory, tables, _summary(run, log, diverged) | {"imported": imported})


def _csv(rows: Sequence[Values], file: File) -> str:
    if not rows:
        return ""
    given = {name for row in rows for name in row}
    names = [name for name in columns(file) if name in given or name in required_columns(file)]
    return csv_text(({name: row.get(name, math.nan) for name in names} for row in rows), names)


def _diverged_at(log: ImportedLog) -> int | None:
    for row in sorted((*log.metrics, *log.steps), key=lambda row: row["step"]):
        losses = ("train_loss", "step_loss") if row["step"] > 0 else ()
        judged = [name for name in row if name in EVALUATED or name in losses]
        if not all(math.isfinite(row[name]) for name in judged):
            return int(row["step"])
    return None


def _summary(run: Run, log: ImportedLog, diverged: int | None) -> dict[str, Any]:
    last = log.metrics[-1]
    best = {name: METRICS[name].best_of(row.get(name, math.nan) for row in log.metrics) for name in BEST}
    return {
        "status": "finished" if diverged is None else "diverged",
        "run": run.id,
        "scale": run.scale,
        "seed": run.seed,
        "config_hash": run.hash,
        "steps": int(last["step"]),
        "rounds": _known(last, "round"),
        "volume_percent": _known(last, "volume_percent"),
        "bytes_sent": _known(last, "bytes_sent"),
        "final": {name: _known(last, name) for name in (*BEST, *EVALUATED) if name in last},
        "best": {name: value for name, value in best.items() if value is not None},
        "seconds": {clock: _known(last, f"{clock}_seconds") for clock in ("training", "communication", "evaluation")}
        | {"wall": None},
        "diverged": None if diverged is None else {"step": diverged, "worker": None},
    }


def _known(row: Values, name: str) -> float | None:
    value = row.get(name, math.nan)
    return value if math.isfinite(value) else None
