"""Two sets of results beside each other: which runs they have, with which settings, values and verdicts.

Each side is a folder of results or an archive. Values are compared seed by seed, and shown by series, beside the spread
over its seeds. Times are left out unless asked for: they belong to a machine.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from resync.base.errors import UserError
from resync.base.files import read_bytes
from resync.base.settings.errors import ConfigError
from resync.base.settings.loader import load
from resync.base.settings.tree import leaves
from resync.base.text_tables import aligned, one_line
from resync.papers.audit import audit
from resync.papers.paper import Suite
from resync.runs.metrics.registry import METRICS
from resync.runs.results.errors import MissingRun
from resync.runs.results.runs import RunResult, read_run
from resync.runs.run.training import Execution
from resync.tasks.data_sets.readers import EXECUTION
from resync.workers.formulas.rounding import ROUNDING

Entry = dict[str, Any]


@dataclass
class Difference:
    """How two sets of results differ; `values`, `verdicts` and settings are pairs, those of one side and of the other.

    Attributes:
        only: the runs of each side that the other one does not have.
        unreadable: the runs of each side that cannot be read, and why.
        settings: `run`, dotted `key` and `values`, None where it is not set.
        execution: the same of settings that change no result, which are not a difference.
        values: `series`, `metric` and `unit`, number of common `seeds` and of `differing` ones, `means` over the common
            seeds, and `spread`, the larger standard deviation over them, NaN for a single one.
        verdicts: `scale`, `name` of a published value or claim, and `verdicts`.
        compared: the number of runs of both sides.
    """

    only: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    unreadable: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    settings: list[Entry] = field(default_factory=list)
    execution: list[Entry] = field(default_factory=list)
    values: list[Entry] = field(default_factory=list)
    verdicts: list[Entry] = field(default_factory=list)
    compared: int = 0

    def __bool__(self) -> bool:
        return any([*self.only, *self.unreadable, self.settings, self.values, self.verdicts])

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"equal": not self}


@dataclass(frozen=True)
class Limits:
    """What counts as equal: values within a relative tolerance, or means within so many spreads; times if asked for."""

    tolerance: float = 1e-9
    spreads: float = 0.0
    times: bool = False


def compare(suite: Suite, sides: Sequence[Path], scales: Iterable[str], limits: Limits) -> Difference:
    """Compare two folders of results at some scales; verdicts are those of the configuration `suite`."""
    difference = Difference()
    for scale in scales:
        runs = [_runs(side, scale, unreadable) for side, unreadable in zip(sides, difference.unreadable, strict=True)]
        for index, only in enumerate(difference.only):
            only += sorted(runs[index].keys() - runs[1 - index].keys())
        common = [
            name for name in runs[0]
            if name in runs[1] and _compare_settings(name, [side[name].directory for side in runs], difference)
        ]  # fmt: skip
        difference.compared += len(common)
        difference.values += _values(common, runs, limits)
        papers = sorted({name.split("/")[1] for of_side in runs for name in of_side} & suite.papers.keys())
        one, other = ({f"{row.paper}/{row.id}": row.verdict for row in audit(suite, scale, side, papers).lines}
                      for side in sides)  # fmt: skip
        difference.verdicts += [
            {"scale": scale, "name": name, "verdicts": (verdict, other[name])}
            for name, verdict in one.items() if verdict != other[name]
        ]  # fmt: skip
    return difference


def _runs(results: Path, scale: str, unreadable: list[str]) -> dict[str, RunResult]:
    """The runs with results by folder, `mini/qsr/...`; those that cannot be read are noted."""
    runs = {}
    for file in sorted(results.glob(f"{scale}/*/*/*/seed*/summary.json")):
        name = file.parent.relative_to(results).as_posix()
        try:
            runs[name] = read_run(file.parent)
        except MissingRun:
            continue
        except (UserError, OSError) as error:
            unreadable.append(f"{name}: {one_line(str(error))}")
    return runs


def _compare_settings(name: str, sides: Sequence[Path], difference: Difference) -> bool:
    """Note how the settings of a run differ; returns False, and notes why, if those of a side cannot be read."""
    files = [side / "run.yaml" for side in sides]
    with suppress(UserError, OSError):
        if len({read_bytes(file) for file in files}) == 1:
            return True
    read: list[dict[str, Any]] = []
    for file, unreadable in zip(files, difference.unreadable, strict=True):
        try:
            read.append(dict(leaves(load(file).plain())))
        except ConfigError as error:
            unreadable.append(f"{name}: {one_line(str(error))}")
    if len(read) < len(sides):
        return False
    one, other = read
    for key in sorted(one.keys() | other.keys()):
        if one.get(key) != other.get(key):
            first_key, _, rest = key.partition(".")
            of_data = first_key == "data" and rest.partition(".")[0] in EXECUTION
            of = difference.execution if of_data or first_key in Execution.model_fields else difference.settings
            of.append({"run": name, "key": key, "values": (one.get(key), other.get(key))})
    return True


def _values(common: Sequence[str], runs: Sequence[Mapping[str, RunResult]], limits: Limits) -> Iterator[Entry]:
    keys = ["series", "seed", "metric"]
    one, other = (
        pd.DataFrame(
            [(*name.rsplit("/", 1), *number) for name in common for number in side[name].final_values()],
            columns=[*keys, "value"],
        )
        for side in runs
    )
    pairs = one.merge(other, how="outer", on=keys)
    # What is left of larger numbers, such as the error of an exact average, may be all rounding.
    sizes = pairs[["value_x", "value_y"]].abs().max(axis=1).replace(np.inf, np.nan)
    column = [pairs["series"].str.rsplit("/", n=1).str[0], pairs["metric"]]
    pairs["floor"] = (ROUNDING * sizes.groupby(column).transform("max")).fillna(0.0)
    for (series, metric), both in pairs.groupby(["series", "metric"]):
        declared = METRICS.get(str(metric))
        if declared and declared.depends_on == "hardware" and not limits.times:
            continue
        values = both[["value_x", "value_y"]]
        equal = np.isclose(
            values["value_x"], values["value_y"], rtol=limits.tolerance, atol=both["floor"], equal_nan=True
        )
        means, spread = values.mean(skipna=False), values.std(skipna=False).max()
        if not equal.all() and not (limits.spreads and _in_spreads(means.tolist(), spread) <= limits.spreads):
            yield {
                "series": series, "metric": metric, "unit": declared.unit if declared else "", "seeds": len(both),
                "differing": int((~equal).sum()), "means": tuple(means.tolist()), "spread": float(spread),
            }  # fmt: skip


def _in_spreads(means: Sequence[float], spread: float) -> float:
    """The difference of two means in units of the spread; NaN if there is none."""
    return abs(means[1] - means[0]) / (spread or float("nan"))


def report(difference: Difference, names: Sequence[str]) -> str:
    """The differences in words, a line each; A and B are the two sides."""
    lines = [f"A: {names[0]}", f"B: {names[1]}", f"{difference.compared} runs in both"]
    for side, only, unreadable in zip("AB", difference.only, difference.unreadable, strict=True):
        lines += [f"only in {side}: {run}" for run in only]
        lines += [f"unreadable in {side}: {line}" for line in unreadable]
    for title, settings in (("setting", difference.settings), ("execution (changes no result)", difference.execution)):
        lines += ["{}: {run}: {key}: {values[0]!r} -> {values[1]!r}".format(title, **entry) for entry in settings]
    lines += [
        "verdict: {scale} {name}: {verdicts[0]} -> {verdicts[1]}".format(**entry) for entry in difference.verdicts
    ]
    if difference.values:
        header = ("series", "metric", "A", "B", "spread", "in spreads", "seeds that differ")
        lines += ["", *aligned([header, *map(_cells, difference.values)])]
    return "\n".join([*lines, "", "different" if difference else "equal"])


def _cells(entry: Entry) -> tuple[str, ...]:
    shown = [f"{value:.6g}" for value in (*entry["means"], entry["spread"])]
    in_spreads = f"{_in_spreads(entry['means'], entry['spread']):.2f}"
    return (entry["series"], entry["metric"], *shown, in_spreads, f"{entry['differing']} of {entry['seeds']}")
