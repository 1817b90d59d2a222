"""Two sets of results beside each other: which runs they have, with which settings, values and verdicts.

Each side is a folder of results or an archive. Values are compared seed by seed, and shown by series, beside the spread
over its seeds. Times are left out unless asked for: they belong to a machine.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from resync.audit import audit
from resync.data_sets.readers import EXECUTION
from resync.metrics.registry import METRICS
from resync.paper import Suite
from resync.results.errors import MissingRun, ResultsError
from resync.results.runs import RunResult, read_run
from resync.results.seed_values import SeedValues
from resync.run.training import Execution
from resync.settings.loader import load
from resync.settings.tree import leaves
from resync.text_tables import aligned

Sides = tuple[Any, Any]


@dataclass(frozen=True)
class SettingDifference:
    """A setting, by its dotted key, that a run has with two values; None where it is not set."""

    run: str
    key: str
    values: Sides


@dataclass(frozen=True)
class ValueDifference:
    """A number at the end of runs that differs at some of the seeds that both sides have.

    `means` are over these seeds, `spread` is the larger standard deviation over them, NaN for a single one.
    """

    series: str
    metric: str
    unit: str
    seeds: int
    differing: int
    means: tuple[float, float]
    spread: float

    @property
    def in_spreads(self) -> float:
        """The difference of the means in units of the spread; NaN if there is none."""
        return abs(self.means[1] - self.means[0]) / self.spread if self.spread else math.nan


@dataclass(frozen=True)
class VerdictDifference:
    """A published value or a claim on which the two audits differ."""

    scale: str
    name: str
    verdicts: Sides


@dataclass
class Difference:
    """How two sets of results differ; `execution` holds settings that change no result, and is not a difference."""

    only: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    unreadable: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    settings: list[SettingDifference] = field(default_factory=list)
    execution: list[SettingDifference] = field(default_factory=list)
    values: list[ValueDifference] = field(default_factory=list)
    verdicts: list[VerdictDifference] = field(default_factory=list)
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

    def compares(self, metric: str) -> bool:
        return self.times or metric not in METRICS or METRICS[metric].depends_on != "hardware"

    def same(self, first: float, second: float) -> bool:
        both_nan = math.isnan(first) and math.isnan(second)
        return both_nan or math.isclose(first, second, rel_tol=self.tolerance)


def compare(suite: Suite, sides: Sequence[Path], scales: Iterable[str], limits: Limits) -> Difference:
    """Compare two folders of results at some scales; verdicts are those of the configuration `suite`."""
    found = Difference()
    for scale in scales:
        runs = [_runs(side, scale, unreadable) for side, unreadable in zip(sides, found.unreadable, strict=True)]
        for index, only in enumerate(found.only):
            only += sorted(runs[index].keys() - runs[1 - index].keys())
        common = [name for name in runs[0] if name in runs[1]]
        found.compared += len(common)
        for name in common:
            _compare_settings(name, runs[0][name].directory, runs[1][name].directory, found)
        found.values += _values(common, runs, limits)
        papers = {name.split("/")[1] for each in runs for name in each} & suite.papers.keys()
        found.verdicts += _verdicts(suite, sides, scale, sorted(papers))
    return found


def _runs(results: Path, scale: str, unreadable: list[str]) -> dict[str, RunResult]:
    """The runs with results by folder, `mini/qsr/...`; those that cannot be read are noted."""
    found = {}
    for file in sorted(results.glob(f"{scale}/*/*/*/seed*/summary.json")):
        name = file.parent.relative_to(results).as_posix()
        try:
            found[name] = read_run(file.parent)
        except MissingRun:
            continue
        except ResultsError as error:
            unreadable.append(f"{name}: {error}")
    return found


def _compare_settings(name: str, first: Path, second: Path, found: Difference) -> None:
    files = [directory / "run.yaml" for directory in (first, second)]
    if files[0].read_bytes() == files[1].read_bytes():
        return
    one, other = (dict(leaves(load(file).plain())) for file in files)
    for key in sorted(one.keys() | other.keys()):
        if one.get(key) != other.get(key):
            difference = SettingDifference(name, key, (one.get(key), other.get(key)))
            (found.execution if _changes_no_result(key) else found.settings).append(difference)


def _changes_no_result(key: str) -> bool:
    first, _, rest = key.partition(".")
    return first in Execution.model_fields or (first == "data" and rest.partition(".")[0] in EXECUTION)


def _values(
    common: Iterable[str], runs: Sequence[Mapping[str, RunResult]], limits: Limits
) -> Iterator[ValueDifference]:
    """The differing numbers of each series, over the seeds that both sides have."""
    series: dict[str, list[str]] = {}
    for name in common:
        series.setdefault(name.rpartition("/")[0], []).append(name)
    for title, names in series.items():
        pairs = [[dict(side[name].final_values()) for side in runs] for name in names]
        for metric in dict.fromkeys(key for pair in pairs for side in pair for key in side):
            if limits.compares(metric):
                sides = [[side.get(metric, math.nan) for side in each] for each in zip(*pairs, strict=True)]
                yield from _value(title, metric, sides, limits)


def _value(series: str, metric: str, sides: Sequence[Sequence[float]], limits: Limits) -> Iterator[ValueDifference]:
    differing = sum(not limits.same(*pair) for pair in zip(*sides, strict=True))
    if not differing:
        return
    ours, theirs = map(SeedValues.of, sides)
    spread = max((each.std for each in (ours, theirs) if each.std == each.std), default=math.nan)
    unit = METRICS[metric].unit if metric in METRICS else ""
    found = ValueDifference(series, metric, unit, ours.n, differing, (ours.mean, theirs.mean), spread)
    if not (limits.spreads and found.in_spreads <= limits.spreads):
        yield found


def _verdicts(suite: Suite, sides: Sequence[Path], scale: str, papers: Sequence[str]) -> Iterator[VerdictDifference]:
    found = []
    for side in sides:
        lines = audit(suite, scale, side, papers).lines
        found.append({f"{row.paper}/{row.id}": row.verdict for row in lines})
    for name, verdict in found[0].items():
        if verdict != found[1][name]:
            yield VerdictDifference(scale, name, (verdict, found[1][name]))


def report(found: Difference, names: Sequence[str]) -> str:
    """The differences in words, a line each; A and B are the two sides."""
    lines = [f"A: {names[0]}", f"B: {names[1]}", f"{found.compared} runs in both"]
    for side, only, unreadable in zip("AB", found.only, found.unreadable, strict=True):
        lines += [f"only in {side}: {run}" for run in only]
        lines += [f"unreadable in {side}: {line}" for line in unreadable]
    for title, settings in (("setting", found.settings), ("execution (changes no result)", found.execution)):
        lines += [f"{title}: {each.run}: {each.key}: {each.values[0]!r} -> {each.values[1]!r}" for each in settings]
    lines += [f"verdict: {each.scale} {each.name}: {each.verdicts[0]} -> {each.verdicts[1]}" for each in found.verdicts]
    if found.values:
        header = ("series", "metric", "A", "B", "spread", "in spreads", "seeds that differ")
        lines += ["", *aligned([header, *map(_line, found.values)])]
    return "\n".join([*lines, "", "different" if found else "equal"])


def _line(each: ValueDifference) -> tuple[str, ...]:
    numbers = (*each.means, each.spread)
    shown = [f"{value:.6g}" for value in numbers]
    return (each.series, each.metric, *shown, f"{each.in_spreads:.2f}", f"{each.differing} of {each.seeds}")
