"""Reading a run's wandb logs back, offline, as an independent record of the values in metrics.csv.

The transaction log `run-*.wandb` has wandb's own binary format. wandb reads it with `wandb leet inspect
--json`, which only starts the program `wandb-core` of the package. Here that program is called directly: it returns
the same records within a few hundredths of a second, whereas importing wandb first takes seconds per log.
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

FOLDER = "wandb"
TIMEOUT_SECONDS = 120
RELATIVE_TOLERANCE = 1e-9
_NOT_JSON = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class WandbLogError(ValueError):
    """A log that cannot be read or that contradicts metrics.csv; the message is one line that names the file."""


@dataclass(frozen=True)
class History:
    """The history rows of a run by `step`; not `complete` if the writer of a log was killed."""

    rows: dict[int, dict[str, float]]
    complete: bool


def compare(directory: Path, rows: Sequence[Mapping[str, float]], resumed_from: Sequence[int]) -> None:
    """Compare the rows of metrics.csv with the run's wandb logs, value by value; a missing value counts as NaN.

    A log whose writer was killed may lack steps before the last step from which the run was resumed. Raises
    WandbLogError for the first difference (run, step, metric, both values), or if there is no log.
    """
    name = f"{directory}: wandb and metrics.csv differ"
    if not logs(directory):
        raise WandbLogError(f"{directory / FOLDER}: no wandb log, although run.yaml asks for one")
    history = read_history(directory)
    recorded = {int(row["step"]): row for row in rows}
    for step in sorted(recorded.keys() | history.rows.keys()):
        if step not in recorded:
            raise WandbLogError(f"{name}: step {step} is only in wandb")
        if step in history.rows:
            _compare_row(f"{name}: step {step}", recorded[step], history.rows[step])
        elif history.complete or step > max(resumed_from, default=-1):
            cut = "" if history.complete else "; a wandb log is incomplete, as on a full disk"
            raise WandbLogError(f"{name}: step {step} is only in metrics.csv{cut}")


def logs(directory: Path) -> list[Path]:
    """The wandb logs of a run, oldest first: one per job that trained it."""
    return sorted(directory.glob(f"{FOLDER}/*run-*/run-*.wandb"))


def read_history(directory: Path) -> History:
    """All history rows of a run; where several logs have the same step, the latest log wins.

    Records after a damaged one are lost. Raises WandbLogError if wandb cannot open a log or is not installed.
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
    """The program in the installed wandb package, located without importing the package."""
    spec = find_spec("wandb")
    program = Path(spec.origin).parent / "bin/wandb-core" if spec and spec.origin else None
    if program is None or not program.exists():
        raise WandbLogError("wandb-core, which reads the wandb logs, is missing: reinstall wandb")
    return program
