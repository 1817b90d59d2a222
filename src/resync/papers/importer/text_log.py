"""Text logs of other programs: one reader, and a declaration for each format (`resync.papers.importer.programs`)."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import harmonic_mean

from resync.base.settings.errors import suggestion
from resync.papers.importer.log import ImportedLog, LogError, Values, read_text, require_possible, to_number
from resync.papers.importer.table import read_csv
from resync.runs.metrics.registry import extremes_of_workers
from resync.runs.run import Run

Rows = Sequence[tuple[str, Values]]
"""What a rank has logged, in the program's columns: the place (`file:line`) and the numbers of each row."""


@dataclass(frozen=True)
class TextLog:
    """How a program logs. Its rows are lines of a table with a header, or lines with entries of names and values.

    Args:
        columns: the columns that are read. A table has all of them; a line has those that it names.
        log_of: the log of one rank, in our columns and units. Raises LogError.
        header: how the header of the table begins; None for lines with entries.
        settings: settings of the run by the name under which a line before the header has them.
        entry: pattern of an entry of a line, with the groups `name` and `value`.
        left_out: pattern of lines that are not read.
        rank: pattern with the group `rank`: of the name of a rank's file, with the group `workers` too, where every
            rank has a table, or of the beginning of a line; lines without are of rank 0.
        asynchronous: whether ranks do not wait for each other, so that they have a common time, but not a common pace.
        split: the columns of which every rank scores its own part of the data, so that only the mean is known.
    """

    columns: tuple[str, ...]
    log_of: Callable[[Rows, Run], ImportedLog]
    rank: re.Pattern[str]
    header: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    entry: re.Pattern[str] = re.compile(r"(?!)")
    left_out: re.Pattern[str] = re.compile(r"(?!)")
    asynchronous: bool = False
    split: tuple[str, ...] = ()

    def read(self, files: Sequence[Path], run: Run) -> ImportedLog:
        """The log of a run, averaged over its ranks. Raises LogError for another run's, and a missing rank."""
        rows = self._tables(files, run) if self.header else self._lines(files, run)
        logs = {rank: self.log_of(of_rank, run) for rank, of_rank in sorted(rows.items())}
        logs = {rank: log for rank, log in logs.items() if log.metrics or self.header}
        if not any(log.metrics for log in logs.values()):
            wanted = f" (lines with {self.columns[0]} and {self.columns[1]})" if self.entry.groups else ""
            raise LogError(f"{files[0]}: no validation of {run.id}{wanted}, allowed: the log of a validated training")
        for rank, log in logs.items():
            for table in (log.metrics, log.steps):
                require_possible((f"{files[0]}: rank {rank}, step {row['step']:g}", row) for row in table)
        metrics, steps = (
            self._average({rank: getattr(log, name) for rank, log in logs.items()}, f"{files[0]}: rank")
            for name in ("metrics", "steps")
        )
        return ImportedLog(metrics, steps, tuple(dict.fromkeys(note for log in logs.values() for note in log.notes)))

    def _tables(self, files: Sequence[Path], run: Run) -> dict[int, Rows]:
        rows: dict[int, Rows] = {}
        for file in files:
            match = self.rank.search(file.name)
            if not match:
                raise LogError(f"{file}: found the name {file.name}, allowed: {self.rank.pattern}")
            rank, workers = int(match["rank"]), int(match["workers"])
            if workers != run.workers or rank >= workers or rank in rows:
                raise LogError(
                    f"{file}: found rank {rank} of {workers}{' again' if rank in rows else ''}, allowed: each rank of "
                    f"{run.workers}, the workers of {run.id}, once"
                )
            rows[rank] = list(self._table(file, run))
        if missing := sorted(set(range(run.workers)) - rows.keys()):
            raise LogError(f"{files[0].parent}: no log of rank {', '.join(map(str, missing))} of {run.workers}")
        return rows

    def _table(self, file: Path, run: Run) -> Iterator[tuple[str, Values]]:
        before = read_text(file).split("\n")
        start = next((number for number, line in enumerate(before) if line.startswith(f"{self.header},")), None)
        if start is None:
            raise LogError(f"{file}: no header line, allowed: one that begins with {self.header}")
        for number, line in enumerate(before[:start], start=1):
            name, _, text = line.strip().partition(",")
            if name in self.settings:
                declared = getattr(run, self.settings[name])
                if (value := to_number(text, f"{file}:{number}", name)) != declared:
                    raise LogError(f"{file}:{number}: {name}: found {value:g}, allowed: {declared}, as in {run.id}")
        table = read_csv(file, start)
        for name in self.columns:
            if name not in table.columns:
                raise LogError(f"{table.place}: no column {name!r}{suggestion(name, table.columns)}")
        for cells in table.rows:
            place = cells[self.columns[0]].place
            yield place, {name: to_number(cells[name].text, place, name) for name in self.columns}

    def _lines(self, files: Sequence[Path], run: Run) -> dict[int, Rows]:
        rows: dict[int, list[tuple[str, Values]]] = {}
        for file in files:
            for number, line in enumerate(read_text(file).split("\n"), start=1):
                place = f"{file}:{number}"
                entries = {entry["name"]: entry["value"] for entry in self.entry.finditer(line)}
                if self.left_out.search(line) or self.columns[0] not in entries:
                    continue
                prefix = self.rank.match(line)
                rank = int(prefix["rank"]) if prefix else 0
                if rank >= run.workers:
                    raise LogError(f"{place}: found rank {rank}, allowed: 0 to {run.workers - 1}, as in {run.id}")
                values = {name: to_number(entries[name], place, name) for name in self.columns if name in entries}
                rows.setdefault(rank, []).append((place, values))
        return dict(rows)

    def _average(self, ranks: Mapping[int, Sequence[Values]], place: str) -> list[Values]:
        first = min(ranks)
        for rank, rows in ranks.items():
            if [row["step"] for row in rows] != [row["step"] for row in ranks[first]]:
                raise LogError(f"{place} {rank}: logged at other steps than rank {first}, allowed: the same")
        return [self._mean(rows) for rows in zip(*ranks.values(), strict=True)]

    def _mean(self, rows: Sequence[Values]) -> Values:
        row: Values = {}
        for name in dict.fromkeys(name for cells in rows for name in cells):
            values = [cells[name] for cells in rows if name in cells]
            if name == "training_seconds" and self.asynchronous:
                if len(values) == len(rows):
                    row[name] = harmonic_mean(values)
                continue
            row[name] = math.fsum(values) / len(values)
            extremes = extremes_of_workers(name)
            if extremes and name not in self.split:
                row |= zip(extremes, (min(values), max(values)), strict=True)
        return row | {name: rows[0][name] for name in ("step", "epoch")}
