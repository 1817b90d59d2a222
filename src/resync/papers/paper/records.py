"""Records of searches that authors logged: the published values of every seed and number of workers."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from resync.base.settings.base import Id, NonNegativeNumber, Settings, Text
from resync.base.settings.problems import Collector
from resync.papers.paper.published import PublishedValue
from resync.papers.paper.references import Known
from resync.runs.metrics.registry import METRICS
from resync.runs.run.run import Run

COLUMNS = ("algorithm", "topology", "heterogeneity", "r0", "num_workers", "seed", "best_steps", "best_lr")
"""The columns of records.csv: a series by what it trains, and what a search of it has found."""
NAME = "records"


class RecordsFile(Settings):
    """`records.yaml`: what the numbers of `records.csv` beside it have in common as published values."""

    item: Id = Field(description="figure or table that shows them")
    status: Literal["verified", "secondary"] = Field(description="how certain they are, as for published values")
    source: Text = Field(description="where they come from")
    tolerance: NonNegativeNumber = Field(description="difference of a record that still counts as reproduced, relative")
    tolerance_reason: Text = Field(description="why so much")


def key_of(run: Run) -> tuple[str, str, float, float]:
    """The first four columns of the records of a run: the two parts of its label, and its problem."""
    algorithm, _, topology = run.label.partition(", ")
    options = run.data.options
    return algorithm, topology, options["heterogeneity"], options["distance"]


def read_records(folder: Path, known: Known, collector: Collector) -> tuple[PublishedValue, ...]:
    """The records of a paper as published values of its series at paper scale; none without the file."""
    file = folder / f"{NAME}.yaml"
    node = collector.load(file) if file.exists() else None
    shared = collector.validate(RecordsFile, node) if node else None
    if shared is None or not known.sound:
        return ()
    series = {key_of(run): run for run in known.runs.values() if run.scale == "paper" and run.search}
    with (folder / f"{NAME}.csv").open(newline="", encoding="utf-8-sig") as lines:
        rows = list(csv.DictReader(lines))
    values: list[PublishedValue] = []
    for number, row in enumerate(rows, 2):
        place = f"{folder / NAME}.csv:{number}"
        if tuple(row) != COLUMNS or None in row.values():
            found = f"found {', '.join(f'{name}: {text}' for name, text in row.items())}"
            collector.lines.append(f"{place}: {found}, allowed: a value for each of {', '.join(COLUMNS)}")
            break
        try:
            run = series.get((row["algorithm"], row["topology"], float(row["heterogeneity"]), float(row["r0"])))
            if run is None or not run.search or int(row["num_workers"]) not in run.search.workers:
                collector.lines.append(f"{place}: no run at paper scale searches this")
                continue
            values.append(_value(run, row, shared))
        except ValueError as error:
            collector.lines.append(f"{place}: {error}")
    return tuple(values)


def _value(run: Run, row: Mapping[str, str], shared: RecordsFile) -> PublishedValue:
    """One search is one number: its steps, and beside them the rate with which it took them."""
    workers, seed, steps = int(row["num_workers"]), int(row["seed"]), float(row["best_steps"])
    return PublishedValue(
        id=f"{run.experiment}_{run.series}_{workers}_seed{seed}",
        item=shared.item,
        experiment=run.experiment,
        series=run.series,
        metric="tuned_steps",
        seed=seed,
        at_workers=workers,
        value=steps,
        rate=float(row["best_lr"]),
        unit=METRICS["tuned_steps"].unit,
        tolerance=shared.tolerance * abs(steps),
        tolerance_reason=shared.tolerance_reason,
        status=shared.status,
        source=shared.source,
    )
