"""Results as data frames of pandas, for analyses of one's own."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pandas as pd

from resync.base.errors import UserError
from resync.base.files import read_json
from resync.papers.archive.unpack import scales_of, unpack
from resync.runs.results.collect import rows_of
from resync.runs.results.runs import state_of
from resync.runs.run import Run

_CLAIM = [
    "paper",
    "id",
    "statement",
    "verdict",
    "because",
    "exploratory",
    "reason",
    "metric",
    "unit",
    "at_least",
    "status",
    "source",
]


class Results(NamedTuple):
    """Data frames: a row per run, per value (of an evaluation, a step or a summary), and per claim of the audit."""

    runs: pd.DataFrame
    values: pd.DataFrame
    claims: pd.DataFrame


def read_results(name: str, paper: str | None = None) -> Results:
    """The runs, values and claims of a scale: `mini` for yours, `reference/mini` for the repository's own.

        results = resync.read_results("reference/mini", paper="qsr")
        results.values.query("metric == 'val_top1'").groupby(["experiment", "series"]).value.mean()

    Args:
        name: the folder below `results`, or the path of such a folder.
        paper: only this one; all runs of mini scale take a minute to read.

    Raises ValueError if there are no results.
    """
    folder = Path("results", name) if Path("results", name).is_dir() else Path(name)
    scale, here = folder.name, folder.parent
    if not (folder / "audit.json").is_file():
        raise UserError(f"{folder}: has no audit.json, allowed: the folder of a scale, such as reference/mini")
    with TemporaryDirectory() as unpacked:
        results = Path(unpacked) if scale in scales_of(here) else here
        if results != here:
            unpack(here, scale, results)
        files = sorted(results.glob(f"{scale}/{paper or '*'}/*/*/seed*/run.yaml"))
        states = [state_of(Run.from_file(file), results) for file in files]
        values = rows_of(states).to_pandas()
    runs = [
        {"run": state.run.id, "paper": state.run.paper, "experiment": state.run.experiment, "series": state.run.series,
         "label": state.run.label, "seed": state.run.seed, "status": state.status, "reason": state.reason}
        for state in states
    ]  # fmt: skip
    claims = [claim for claim in read_json(folder / "audit.json")["claims"] if paper in (None, claim["paper"])]
    effects = [{key: claim[key] for key in _CLAIM} | _effect(claim["effects"]) for claim in claims]
    return Results(pd.DataFrame(runs), values, pd.DataFrame(effects))


def _effect(effects: list[dict[str, object]]) -> dict[str, object]:
    """Of a claim on two series, the effect with its interval."""
    return {key: effects[0][key] if len(effects) == 1 else None for key in ("difference", "low", "high")}
