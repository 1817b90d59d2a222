"""Columns of a table: the metrics of every series as these runs have them, beside the published values."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from resync.papers.paper.published import PublishedValue
from resync.papers.render.item import NONE, UNMEASURED, ItemData, Series
from resync.papers.render.style import time_unit
from resync.papers.render.table import Cell, Heading, Table
from resync.runs.metrics.registry import METRICS, SECONDS_PER_HOUR
from resync.runs.results.seed_values import SeedValues, as_published, decimals_for, notation
from resync.runs.run.in_words import listed

MARKS = {"secondary": "†", "derived": "‡", "measured": "¶", "unverified": "§"}
"""What stands behind a published value that was not read in the paper itself, by its status."""
FITTED = "*"
"""What stands behind a modelled time of a run to whose published time the model is fitted."""
BEST = "bold: the best mean, and those whose ± overlaps with it"
BEST_OF_ONE = "bold: the best value"
VOLUME = "volume: vectors of parameters that a worker sends, in % of one per step"
_SECONDS = {"s": 1, "h": SECONDS_PER_HOUR}
_FIXED_DECIMALS = {"%": 2, "BLEU": 2}
_SIGNIFICANT, _LEAST_DECIMALS = 3, 3
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

Column = tuple[Heading, tuple[Cell, ...]]
"""A heading and the cells below it, one per series."""


def metric_table(data: ItemData, metrics: Sequence[str], decimals: int | None = None) -> Table:
    """A row per series with these metrics; `decimals` is for the first one, None: as many as it needs.

    Missing, stale and diverged runs are named in words and never enter a mean. A metric for which the paper publishes
    no value of these series has no column of published values.
    """
    columns = [(Heading("Method", numbers=False), tuple(Cell(series.label) for series in data.series))]
    for index, metric in enumerate(metrics):
        columns += _of_metric(data, metric, None if index else decimals, first=index == 0)
    headings, cells = zip(*columns, strict=True)
    rows = tuple(zip(*cells, strict=True))
    records = tuple(data.record(series, metrics) for series in data.series)
    return Table(data.title, headings, rows, records, _note(data, rows, metrics), data.item.caption)


def published_cell(value: PublishedValue | None) -> Cell:
    """`79.86 ± 0.03` with the mark of its status."""
    if value is None:
        return Cell(NONE)
    if value.value is None:
        return Cell("unknown")
    return Cell(as_published(value.value, value.std), mark=MARKS.get(value.status, ""))


def status_notes(rows: Iterable[Iterable[Cell]]) -> list[str]:
    """The meaning of the marks of published values that these rows have."""
    shown = {cell.mark for row in rows for cell in row}
    words = {status: "measured by this project" if status == "measured" else status for status in MARKS}
    return [f"{mark} {words[status]}" for status, mark in MARKS.items() if mark in shown]


def state_marks(notes: Iterable[str]) -> dict[str, str]:
    """A letter for each note on the seeds of a series: `1 of 3 diverged`."""
    return dict(zip(dict.fromkeys(filter(None, notes)), _LETTERS, strict=False))


def state_notes(marks: Mapping[str, str]) -> list[str]:
    """The meaning of these letters."""
    return [f"{letter} {note}" for note, letter in marks.items()]


def _marks(data: ItemData) -> dict[str, str]:
    return state_marks(series.defects for series in data.series if series.results("finished"))


def _of_metric(data: ItemData, metric: str, decimals: int | None, first: bool) -> list[Column]:
    declared = METRICS[metric]
    measured = [series.evidence(metric) for series in data.series]
    size, unit = _shown_unit(declared.unit, [value for ours in measured for value in ours.values])
    shown = [SeedValues.of(value * size for value in ours.values) for ours in measured]
    places = decimals if decimals is not None else _decimals(metric, unit, shown)
    published = [data.published_value(series, metric) for series in data.series]
    published_cells = tuple(map(published_cell, published))
    best = _best(metric, shown)
    ours = tuple(
        _own_cell(data, series, metric, evidence, places, first, is_best)
        for series, evidence, is_best in zip(data.series, shown, best, strict=True)
    )
    theirs = any(value is not None and value.value is not None for value in published)
    modelled = data.simulates(metric)
    if modelled and not data.timed_on:
        group = Heading(declared.title, _written(declared.unit)).own
        return [(Heading("published", group=group), published_cells)] if theirs else []
    if not theirs:
        title = f"Modelled {declared.title.lower()}" if modelled else declared.title
        return [(Heading(title, _written(unit)), ours)]
    here = "modelled" if modelled else "here" if data.scale == "paper" else f"{data.scale} scale"
    same = unit == declared.unit
    group = Heading(declared.title, _written(unit) if same else "").own
    units = ("", "") if same else (_written(unit), _written(declared.unit))
    return [
        (Heading(here, units[0], group), ours),
        (Heading("published", units[1], group), published_cells),
    ]


def _own_cell(
    data: ItemData, series: Series, metric: str, ours: SeedValues, decimals: int, first: bool, best: bool
) -> Cell:
    if not ours.n:
        unmeasured = series.lacks_final(metric) and not data.simulates(metric)
        return Cell(UNMEASURED if unmeasured else series.note if first and series.note else NONE)
    if METRICS[metric].depends_on == "configuration" or data.simulates(metric):
        values = sorted(set(ours.values))
        if not ours.finite:
            return Cell(NONE)
        fitted = data.simulates(metric) and series.time is not None and series.time.fitted
        text = NONE.join(f"{value:,.{decimals if value else 0}f}" for value in values[:1] + values[1:][-1:])
        return Cell(text, mark=FITTED if fitted else "")
    # The number of seeds is in the note unless it differs.
    n = ours.n if len({len(other.results("finished")) for other in data.series} - {0}) > 1 else None
    mark = _marks(data).get(series.defects, "") if first else ""
    return Cell(notation(ours.mean, ours.std, n, decimals), best, mark)


def _best(metric: str, values: Sequence[SeedValues]) -> list[bool]:
    sign = METRICS[metric].sign if METRICS[metric].depends_on == "training" else 0
    known = [evidence for evidence in values if evidence.finite]
    if not sign or len(known) < 2:
        return [False] * len(values)
    best = max(known, key=lambda evidence: sign * evidence.mean)
    reached = sign * best.mean - _spread(best)
    return [evidence.finite and sign * evidence.mean + _spread(evidence) >= reached for evidence in values]


def _spread(evidence: SeedValues) -> float:
    return evidence.std if evidence.n > 1 else 0.0


def _shown_unit(unit: str, values: Sequence[float]) -> tuple[float, str]:
    largest = max((value for value in values if math.isfinite(value)), default=0.0)
    if unit not in _SECONDS or largest <= 0:
        return 1.0, unit
    size, name = time_unit(largest * _SECONDS[unit])
    return _SECONDS[unit] / size, name


def _written(unit: str) -> str:
    return "" if unit in ("1", "rounds") else unit


def _decimals(metric: str, unit: str, values: Sequence[SeedValues]) -> int:
    """The same number of decimals for a whole column, by the median of its standard deviations if it has any.

    Otherwise three significant digits of its largest value, for what training measured with at least three decimals.
    """
    if METRICS[metric].unit in ("rounds", "steps", "bytes"):
        return 0
    if unit in _FIXED_DECIMALS:
        return _FIXED_DECIMALS[unit]
    if spreads := [evidence.std for evidence in values if evidence.finite and _spread(evidence) > 0]:
        return decimals_for(statistics.median(spreads))
    largest = max((abs(evidence.mean) for evidence in values if evidence.finite), default=0.0)
    digits = max(0, _SIGNIFICANT - 1 - math.floor(math.log10(largest))) if largest else 2
    return max(_LEAST_DECIMALS, digits) if METRICS[metric].depends_on == "training" or unit == "s" else digits


def _note(data: ItemData, rows: Sequence[Sequence[Cell]], metrics: Sequence[str]) -> str:
    seeds = data.seeds if data.seeds == "1 seed" else f"mean ± standard deviation of {data.seeds}"
    parts = [data.setting, seeds]
    values = (data.published_value(series, metric) for series in data.series for metric in metrics)
    scales = dict.fromkeys(value.scale for value in values if value is not None and value.value is not None)
    if scales and list(scales) != [data.scale]:
        parts.append(f"published: at {listed(scales)} scale")
    if any(cell.best for row in rows for cell in row):
        several = any(len(series.results("finished")) > 1 for series in data.series)
        parts.append(BEST if several else BEST_OF_ONE)
    if "volume_percent" in metrics:
        alone = any(state.run.workers == 1 for series in data.series for state in series.states)
        parts.append(f"{VOLUME}{'; one worker sends nothing' if alone else ''}")
    parts += filter(None, [data.timed_on if any(map(data.simulates, metrics)) else ""])
    parts += [f"{FITTED} fitted to, no prediction"] if any(cell.mark == FITTED for row in rows for cell in row) else []
    return " · ".join([*parts, *status_notes(rows), *state_notes(_marks(data))])
