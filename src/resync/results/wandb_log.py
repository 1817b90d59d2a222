"""Reading a run's wandb logs, offline: a second record of the values in metrics.csv, and the only one if it is lost.

wandb has no API for the binary logs `run-*.wandb`, only the command `wandb leet inspect --json`, of wandb 0.31 and
later, which prints one record per line. Only this module knows the form of the records.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from resync.errors import UserError
from resync.files import lines_of

FOLDER = "wandb"
TIMEOUT_SECONDS = 120
RELATIVE_TOLERANCE = 1e-9
_NOT_JSON = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class WandbLogError(UserError):
    """A log that cannot be read or that contradicts metrics.csv; the message is one line that names the file."""


History = dict[int, dict[str, float]]
"""The history rows of a run by `step`."""


def compare(directory: Path, rows: Sequence[Mapping[Any, float]], resumed_from: Sequence[int]) -> None:
    """Compare the rows of metrics.csv with the run's wandb logs, value by value; a missing value counts as NaN.

    A log whose writer was killed may lack steps before the last step from which the run was resumed. Raises
    WandbLogError for the first difference (run, step, metric, both values), or if there is no log.
    """
    name = f"{directory}: wandb and metrics.csv differ"
    if not logs(directory):
        raise WandbLogError(f"{directory / FOLDER}: no wandb log, although run.yaml asks for one")
    history, complete = read_history(directory)
    recorded = {int(row["step"]): row for row in rows}
    for step in sorted(recorded.keys() | history.keys()):
        if step not in recorded:
            raise WandbLogError(f"{name}: step {step} is only in wandb")
        if step in history:
            _compare_row(f"{name}: step {step}", recorded[step], history[step])
        elif complete or step > max(resumed_from, default=-1):
            cut = "" if complete else "; a wandb log is incomplete, as on a full disk"
            raise WandbLogError(f"{name}: step {step} is only in metrics.csv{cut}")


def logs(directory: Path) -> list[Path]:
    """The wandb logs of a run, oldest first: one per job that trained it."""
    return sorted(directory.glob(f"{FOLDER}/*run-*/run-*.wandb"))


def read_history(directory: Path) -> tuple[History, bool]:
    """All history rows of a run, and False if the writer of a log was killed; the latest log of a step wins.

    Records after a damaged one are lost. Raises WandbLogError if wandb cannot open a log or is not installed.
    """
    rows: History = {}
    complete = True
    for log in logs(directory):
        records, whole = read_log(log)
        # Without wandb's own underscored columns, and with NaN and infinities as numbers.
        plain = ({k: _NOT_JSON.get(v, v) for k, v in row.items() if not k.startswith("_")} for row in records)
        rows |= {int(row["step"]): row for row in plain if "step" in row}
        complete &= whole
    return rows, complete


def read_evaluations(directory: Path, expected: Iterable[int]) -> list[dict[str, float]]:
    """The rows of a metrics.csv that is lost, by step.

    Raises WandbLogError if they cannot be read, or if the writer of a log was killed and an evaluation that was
    expected before the last one is in no log.
    """
    history, complete = read_history(directory)
    last = max(history, default=-1)
    absent = sorted(step for step in set(expected) - history.keys() if step <= last)
    if absent and not complete:
        raise WandbLogError(f"{directory / FOLDER}: a log is incomplete, without the evaluation at step {absent[0]}")
    return [row for _, row in sorted(history.items())]


def read_log(log: Path) -> tuple[list[dict[str, Any]], bool]:
    """What one log has recorded in each call of `wandb.log`, and whether it was closed properly.

    Values are those of JSON; NaN and infinities are texts. Raises WandbLogError.
    """
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(log.resolve())]
    try:
        # Offline, the command reports nothing to wandb's server.
        result = subprocess.run(
            command,
            env=os.environ | {"WANDB_MODE": "offline"},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise WandbLogError(f"{log}: wandb did not read it within {TIMEOUT_SECONDS} s") from None
    if result.returncode:
        reason = lines_of(result.stderr.strip() or "no message")[-1]
        raise WandbLogError(f"{log}: wandb cannot read it: {reason}")
    records = [json.loads(line) for line in lines_of(result.stdout)]
    items = [record["history"].get("item", {}) for record in records if record["type"] == "history"]
    return items, bool(records) and records[-1]["type"] == "exit"


def _compare_row(name: str, recorded: Mapping[str, float], logged: Mapping[str, float]) -> None:
    for metric in sorted(recorded.keys() | logged.keys()):
        ours, theirs = recorded.get(metric, math.nan), logged.get(metric, math.nan)
        both_nan = math.isnan(ours) and math.isnan(theirs)
        if not both_nan and not math.isclose(ours, theirs, rel_tol=RELATIVE_TOLERANCE):
            raise WandbLogError(f"{name}, {metric}: metrics.csv {ours!r}, wandb {theirs!r}")
