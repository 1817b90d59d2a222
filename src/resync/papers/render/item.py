"""An item of a paper: the runs that it shows, their state on disk, and the files into which it is drawn."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from resync.base.files import write_bytes
from resync.papers.paper import Suite
from resync.papers.paper.paper import Item
from resync.papers.paper.published import PublishedValue, most_certain
from resync.papers.plan.modelled import ModelledTime, modelled_time
from resync.papers.render import style
from resync.papers.render.options.base import KindOptions
from resync.papers.render.origin import Origin
from resync.papers.render.points import points_csv
from resync.papers.render.table import Table
from resync.papers.render.table_tex import tex
from resync.runs.metrics.registry import METRICS
from resync.runs.results.errors import ResultsError
from resync.runs.results.runs import RunResult, RunState, state_of
from resync.runs.results.seed_values import SeedValues
from resync.runs.run import Run
from resync.runs.run.in_words import counted, setting_of

_NOTED = ("diverged", "stale", "damaged", "running", "stopped", "failed", "not run")
_PENDING = ("running", "stopped", "not run")

OptionsT = TypeVar("OptionsT", bound=KindOptions)

NONE = "\N{EN DASH}"
"""The text of an empty cell."""
UNMEASURED = "not measured"
"""That of a metric that a finished run does not have."""


@dataclass(frozen=True)
class Series:
    """One line of a figure or row of a table: the states of its seeds on disk, and the modelled time of its runs."""

    label: str
    style: style.Style
    states: tuple[RunState, ...]
    time: ModelledTime | None = None

    @property
    def name(self) -> tuple[str, str]:
        return self.states[0].run.experiment, self.states[0].run.series

    def results(self, status: str) -> list[RunResult]:
        return [state.result for state in self.states if state.status == status and state.result]

    @property
    def simulated(self) -> bool:
        """Whether workers took turns in a process here, whose seconds are not those of a cluster."""
        own = (state for state in self.states if state.result and not state.result.imported)
        return any(state.run.processes < state.run.workers for state in own)

    def evidence(self, metric: str) -> SeedValues:
        """The values of a metric at the finished seeds; none if one of them lacks it, as an imported log may.

        A time of simulated workers is modelled.
        """
        if self.simulated and METRICS[metric].depends_on == "hardware":
            modelled = self.time.final(metric) if self.time else None
            return SeedValues.of([modelled] if modelled is not None and self.results("finished") else [])
        finals = [dict(result.final_values()) for result in self.results("finished")]
        has_it = all(metric in values for values in finals)
        return SeedValues.of(values[metric] for values in finals if has_it)

    def lacks_curve(self, metric: str) -> bool:
        """Whether one of the runs that have ended lacks a column of metrics.csv, as an imported log may."""
        ended = [state.result for state in self.states if state.has_ended and state.result]
        return any(metric not in result.evaluations for result in ended)

    def lacks_final(self, metric: str) -> bool:
        return bool(self.results("finished")) and not self.evidence(metric).n

    @property
    def legend(self) -> str:
        return f"{self.label} ({self.note})" if self.note else self.label

    @property
    def note(self) -> str:
        """Deviations from the declaration in words: `1 of 3 diverged`; empty if every seed has finished."""
        return self._noted(_NOTED)

    @property
    def defects(self) -> str:
        """Problems only: diverged, stale, damaged and failed seeds; pending ones are left out."""
        return self._noted(status for status in _NOTED if status not in _PENDING)

    def _noted(self, statuses: Iterable[str]) -> str:
        counts = {status: sum(state.status == status for state in self.states) for status in statuses}
        results = [state.result for state in self.states if state.result]
        counts["imported"] = sum(result.imported is not None for result in results)
        parts = [f"{count} of {len(self.states)} {status}" for status, count in counts.items() if count]
        whole = [status for status, count in counts.items() if count == len(self.states)]
        return whole[0] if whole else ", ".join(parts)


@dataclass(frozen=True)
class ItemData(Generic[OptionsT]):
    """Input of a kind of figure or table: its series in declared order, and the paper's published values.

    `references` holds one run per series of the item at paper scale, where the series exists there: for numbers that
    follow from the configuration, and to say whether these runs stand in for others.
    """

    item: Item
    scale: str
    series: tuple[Series, ...]
    published: tuple[PublishedValue, ...]
    references: tuple[Run, ...]

    @property
    def options(self) -> OptionsT:
        return cast(OptionsT, self.item.options)

    @property
    def setting(self) -> str:
        """What was trained: `smoke-scale stand-in: mlp on digits, 8 workers, 330 steps`."""
        return setting_of(self._runs, self.references)

    @property
    def title(self) -> str:
        """The title of the item with what was trained, if that is not what the paper trained."""
        return self.item.title_at(self._runs, self.references)

    @property
    def _runs(self) -> list[Run]:
        return [state.run for series in self.series for state in series.states]

    @property
    def drawn(self) -> tuple[Series, ...]:
        return tuple(series for series in self.series if not any(map(series.lacks_curve, self.options.curves)))

    @property
    def absent(self) -> str:
        """The series without results or metrics: `not run: SGP, OSGP; failed: D-PSGD; without val_loss: AR-SGD`."""
        by_note: dict[str, list[str]] = {}
        for series in self.series:
            if not any(state.has_ended for state in series.states):
                by_note.setdefault(series.note, []).append(series.label)
            for metric in self.options.shown_metrics:
                lacks = series.lacks_curve if metric in self.options.curves else series.lacks_final
                if lacks(metric):
                    by_note.setdefault(f"without {metric}", []).append(series.label)
        return "; ".join(f"{note}: {', '.join(labels)}" for note, labels in by_note.items())

    def simulates(self, metric: str) -> bool:
        """Whether a metric is a time, and workers are simulated: it is modelled then."""
        return METRICS[metric].depends_on == "hardware" and any(series.simulated for series in self.series)

    @property
    def timed_on(self) -> str:
        """The devices of modelled times in words; empty without any."""
        on = dict.fromkeys(series.time.on for series in self.series if series.time)
        return f"modelled time: {' and '.join(on)}" if on else ""

    @property
    def seeds(self) -> str:
        """The number of finished seeds per series with any: `3 seeds`, `1 to 3 of 3 seeds`."""
        declared = {len(series.states) for series in self.series}
        finished = {len(series.results("finished")) for series in self.series} - {0}
        ends = map(str, dict.fromkeys((min(finished, default=0), max(finished, default=0))))
        of = "" if finished <= declared else f"{' to '.join(ends)} of "
        return of + counted(declared if of else finished or declared, "seed")

    @property
    def width(self) -> float:
        return style.WIDTHS[self.item.width or type(self.item.options).width]

    def published_value(self, series: Series, metric: str) -> PublishedValue | None:
        """The most certain published value of a series and metric; between equals, the one of this item."""
        return most_certain(self.published, *series.name, metric, self.item.id)

    def record(self, series: Series, metrics: Iterable[str]) -> dict[str, Any]:
        """A row of a table's CSV: the numbers of seeds, and each metric beside its published value."""
        experiment, name = series.name
        record: dict[str, Any] = {
            "experiment": experiment,
            "series": name,
            "label": series.label,
            "scale": self.scale,
            "finished": len(series.results("finished")),
            "diverged": len(series.results("diverged")),
            "declared": len(series.states),
        }
        for metric in metrics:
            ours, published = series.evidence(metric), self.published_value(series, metric)
            modelled = "_modelled" if self.simulates(metric) else ""
            record |= {
                f"{metric}{modelled}_mean": ours.mean if ours.n else None,
                f"{metric}{modelled}_std": ours.std if ours.n > 1 else None,
                f"published_{metric}": published.value if published else None,
                f"published_{metric}_std": published.std if published else None,
                f"published_{metric}_n": published.n if published else None,
                f"published_{metric}_status": published.status if published else None,
            }
        return record


def render(suite: Suite, paper: str, item: str, scale: str, results: Path, figures: Path) -> list[Path]:
    """Draw a figure or table from its own runs; return the files written below `figures/<scale>/<paper>`.

    Damaged runs are named on standard error. Raises ResultsError for a figure none of whose runs has finished.
    """
    data = load(suite, paper, item, scale, results)
    for state in [state for series in data.series for state in series.states if state.status == "damaged"]:
        print(f"resync: warning: {state.run.id}: damaged: {state.reason}", file=sys.stderr)
    return draw(data, figures / scale / paper / item)


def draw(data: ItemData, stem: Path) -> list[Path]:
    """Draw an item; return the files, `stem` with the suffixes of a figure or of a table."""
    kind = import_module(f"resync.papers.render.{data.item.kind}")
    with style.look():
        content = kind.prepare(data)
        if isinstance(content, Table):
            return write_table(content, data.width, stem)
        points = points_csv(content).encode()
        states = [state for series in data.series for state in series.states]
        origin = Origin.of(f"{stem.parent.name}/{stem.name}", data.scale, points, states)
        files = style.encode(kind.draw(content, data.width), data.title, str(origin)) | {".csv": points}
    return _write(files, stem)


def write_table(table: Table, width: float, stem: Path) -> list[Path]:
    """Write a table, set for a page `width` inches wide; return the files."""
    source = tex(table, width, f"{stem.parent.name}-{stem.name}")
    files = {".md": table.markdown().encode(), ".tex": source.encode(), ".csv": table.csv().encode()}
    return _write(files, stem)


def _write(files: Mapping[str, bytes], stem: Path) -> list[Path]:
    for suffix, file in files.items():
        write_bytes(stem.with_suffix(suffix), file)
    return [stem.with_suffix(suffix) for suffix in files]


def load(suite: Suite, paper: str, item: str, scale: str, results: Path) -> ItemData:
    """Read the runs of an item."""
    declared = suite.papers[paper]
    runs = suite.item_runs(paper, item, scale)
    groups = [list(group) for _, group in groupby(runs, key=lambda run: (run.experiment, run.series))]
    styles = style.styles_of(group[0] for group in groups)
    series = [_series(suite, group, look, results) for group, look in zip(groups, styles, strict=True)]
    references = suite.references(paper, item, scale)
    shown = declared.item_at(item, scale)
    return ItemData(shown, scale, tuple(series), declared.published_beside(scale), references)


def _series(suite: Suite, runs: list[Run], look: style.Style, results: Path) -> Series:
    states = tuple(state_of(run, results) for run in runs)
    return Series(runs[0].label, look, states, time_of(suite, states))


def time_of(suite: Suite, states: Sequence[RunState]) -> ModelledTime | None:
    """The modelled time of the runs of a series."""
    sizes = (state.result.summary.get("parameters") for state in states if state.result)
    return modelled_time(suite, states[0].run, next(filter(None, sizes), None))


def require_results(data: ItemData) -> None:
    """Raise ResultsError if there is nothing to draw."""
    if not any(state.has_ended for series in data.series for state in series.states):
        first = data.series[0].states[0]
        raise ResultsError(f"{data.item.id}: none of its runs has finished; {first.reason}")
    if not any(state.has_ended for series in data.drawn for state in series.states):
        raise ResultsError(f"{data.item.id}: {data.absent}")
