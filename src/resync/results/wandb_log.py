"""Reading a run's wandb logs back, offline: the second witness of what metrics.csv says.

The transaction log `run-*.wandb` is wandb's own binary format. wandb reads it with `wandb leet inspect
--json`, which only starts the program `wandb-core` that comes with the package. That program is called here
directly: the same records in some hundredths of a second, where importing wandb first takes seconds a log.
"""

import json
import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 120
RELATIVE_TOLERANCE = 1e-9
_NOT_JSON = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class WandbLogError(ValueError):
    """A log that cannot be read, or says something else than metrics.csv; one line that names the file."""


@dataclass(frozen=True)
class History:
    """The history rows of a run by `step`; not `complete` where the writer of a log was killed."""

    rows: dict[int, dict[str, float]]
    complete: bool


def compare(directory: Path, rows: Sequence[Mapping[str, float]], resumed_from: Sequence[int], required: bool) -> None:
    """Compare the rows of metrics.csv with the run's wandb logs, value by value; what is absent is NaN.

    A log whose writer was killed may lack steps before the last one that the run was resumed from. Raises
    WandbLogError for the first difference (run, step, metric, both values), or without any log if `required`.
    """
    name = f"{directory}: wandb and metrics.csv differ"
    if not logs(directory):
        if required:
            raise WandbLogError(f"{directory / 'wandb'}: no wandb log, although run.yaml asks for one")
        return
    history = read_history(directory)
    recorded = {int(row["step"]): row for row in rows}
    for step in sorted(recorded.keys() | history.rows.keys()):
        if step not in recorded:
            raise WandbLogError(f"{name}: step {step} is in wandb only")
        if step in history.rows:
            _compare_row(f"{name}: step {step}", recorded[step], history.rows[step])
        elif history.complete or step > max(resumed_from, default=-1):
            cut = "" if history.complete else "; a wandb log has no end, as on a full disk"
            raise WandbLogError(f"{name}: step {step} is in metrics.csv only{cut}")


def logs(directory: Path) -> list[Path]:
    """The wandb logs of a run, oldest first: one per job that trained it."""
    return sorted(directory.glob("wandb/*run-*/run-*.wandb"))


def read_history(directory: Path) -> History:
    """All history rows of a run; of several logs with the same step the latest is true.

    What follows a damaged record is not there. Raises WandbLogError if wandb cannot open a log or is missing.
    """
    rows: dict[int, dict[str, float]] = {}
    complete = True
    for log in logs(directory):
        records, whole = _records(log)
        rows.update(_history(records))
        complete &= whole
    return History(rows, complete)


def _compare_row(name: str, recorded: Mapping[str, float], logged: Mapping[str, float]) -> None:
    for metric in sorted(recorded.keys() | logged.keys()):
        ours, theirs = recorded.get(metric, math.nan), logged.get(metric, math.nan)
        both_nan = math.isnan(ours) and math.isnan(theirs)
        if not both_nan and not math.isclose(ours, theirs, rel_tol=RELATIVE_TOLERANCE):
            raise WandbLogError(f"{name}, {metric}: metrics.csv {ours!r}, wandb {theirs!r}")


def _history(records: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, float]]]:
    """The logged numbers of every row with a `step`, without wandb's own underscored columns."""
    for record in records:
        item = record.get("history", {}).get("item", {})
        if "step" in item:
            row = {key: _NOT_JSON.get(value, value) for key, value in item.items() if not key.startswith("_")}
            yield int(row["step"]), row


def _records(log: Path) -> tuple[list[dict[str, Any]], bool]:
    """The records of one log, and whether it was closed properly."""
    program = [str(_wandb_core()), "leet", "inspect", "--no-observability", "--json"]
    try:
        result = subprocess.run(
            [*program, "--run-file", str(log.resolve()), str(log.resolve().parents[1])],
            capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise WandbLogError(f"{log}: wandb did not read it within {TIMEOUT_SECONDS} s") from None
    if result.returncode:
        raise WandbLogError(f"{log}: wandb cannot read it: {result.stderr.strip()}")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    return records, bool(records) and records[-1]["type"] == "exit"


@cache
def _wandb_core() -> Path:
    """The program of the installed wandb package, found without importing the package."""
    spec = find_spec("wandb")
    program = Path(spec.origin).parent / "bin/wandb-core" if spec and spec.origin else None
    if program is None or not program.exists():
        raise WandbLogError("wandb-core, which reads the wandb logs, is missing: install wandb again")
    return program
