"""The CSV logs of the original SGP code (Assran et al. 2019): one file per rank, `...out_r<rank>_n<world size>.csv`.

A file begins with the lines BEGIN-TRAINING, World-Size, Num-DLWorkers and Batch-Size (per node), followed by a header
and rows. In a training row, `val` is -1 and `itr` counts the steps of an epoch from 0; the last step of every epoch has
a row. A validation row, one per epoch, has `itr` -1 and in `val` the top-1 accuracy of the rank's own model with its
own BatchNorm statistics on the whole validation set. These become the metrics of the workers' own models; other values
are averaged over ranks. As in the paper's figures, the training time is the number of steps times the mean time per
step. The logs are from methods that synchronise in every step (AR-SGD, SGP, D-PSGD); `resync.importer.adpsgd` reads
those of AD-PSGD, which counts steps differently.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resync.config import Run
from resync.importer.log import ImportedLog, LogError, Values, read_text, to_count, to_number
from resync.settings.errors import suggestion

UNTIMED_STEPS = 10
"""Number of steps at the start of an epoch whose times only the later version of the code (2023) leaves out."""

_COLUMNS = {
    "epoch": "Epoch",
    "step": "itr",
    "batch_seconds": "avg:BT(s)",
    "data_seconds": "DT(s)",
    "loss": "Loss",
    "train_loss": "avg:Loss",
    "train_top1": "avg:Prec@1",
    "train_top5": "avg:Prec@5",
    "val_top1": "val",
}
"""The columns that are read, by our name."""

TRAINING_MEANS = ("train_loss", "train_top1", "train_top5")
"""Running means over the epoch in training rows, which are our metrics."""


@dataclass
class _Rank:
    """Content of one file: training rows by step and accuracies by epoch, both counted from 1 on completion."""

    file: Path
    training: dict[int, Values] = field(default_factory=dict)
    top1: dict[int, float] = field(default_factory=dict)


def read(files: Sequence[Path], run: Run) -> ImportedLog:
    """The log of all ranks of a run. Raises LogError for a file of another run or a missing rank."""
    ranks = [_read_rank(file, run) for file in by_rank(files, run)]
    first = ranks[0]
    for rank in ranks:
        for what, ours, theirs in (("epochs", rank.top1, first.top1), ("steps", rank.training, first.training)):
            if ours.keys() != theirs.keys():
                raise LogError(f"{rank.file}: other {what} than in {first.file}, allowed: the same in all ranks")
    return ImportedLog(_evaluations(ranks, run), _steps(ranks, run))


def by_rank(files: Sequence[Path], run: Run) -> list[Path]:
    """The files in the order of their ranks. Raises LogError if they are not those of all workers of the run."""
    ranks: dict[int, Path] = {}
    for file in files:
        number = _rank_of(file, run)
        if number in ranks:
            raise LogError(f"{file}: rank {number} again, allowed: one file per rank")
        ranks[number] = file
    if missing := sorted(set(range(run.workers)) - ranks.keys()):
        raise LogError(f"{files[0].parent}: no log of rank {', '.join(map(str, missing))} of {run.workers}")
    return [ranks[number] for number in sorted(ranks)]


def rows(file: Path, run: Run) -> Iterator[tuple[str, Values]]:
    """The rows of a file, each with its place. Raises LogError for a file of another format or run."""
    lines = list(enumerate(csv.reader(read_text(file).splitlines()), start=1))
    start = next((index for index, (_, cells) in enumerate(lines) if cells[:1] == ["Epoch"]), None)
    if start is None:
        raise LogError(f"{file}: no header line, allowed: one that begins with Epoch,itr")
    _check_preamble(file, lines[:start], run)
    number, header = lines[start]
    for name in _COLUMNS.values():
        if name not in header:
            raise LogError(f"{file}:{number}: no column {name!r}{suggestion(name, header)}")
    for number, cells in lines[start + 1 :]:
        if len(cells) != len(header):
            raise LogError(f"{file}:{number}: found {len(cells)} values, allowed: {len(header)}, as in the header")
        yield f"{file}:{number}", _values(f"{file}:{number}", dict(zip(header, cells, strict=True)))


def mean(values: Iterable[float]) -> float:
    """The mean, independent of the order."""
    listed = list(values)
    return math.fsum(listed) / len(listed)


def _rank_of(file: Path, run: Run) -> int:
    match = re.search(r"out_r(\d+)_n(\d+)\.csv$", file.name)
    if not match:
        raise LogError(f"{file}: found the name {file.name}, allowed: ...out_r<rank>_n<world size>.csv")
    rank, world_size = map(int, match.groups())
    if world_size != run.workers or rank >= world_size:
        allowed = f"ranks 0 to {run.workers - 1} of {run.workers}, the workers of {run.id}"
        raise LogError(f"{file}: found rank {rank} of {world_size}, allowed: {allowed}")
    return rank


def _check_preamble(file: Path, lines: list[tuple[int, list[str]]], run: Run) -> None:
    """Compare the settings in the log's first lines with those of the run."""
    declared = {"World-Size": run.workers, "Batch-Size": run.local_batch_size}
    for number, cells in lines:
        if len(cells) == 2 and cells[0] in declared:
            found, allowed = to_number(cells[1], f"{file}:{number}", cells[0]), declared[cells[0]]
            if found != allowed:
                raise LogError(
                    f"{file}:{number}: {cells[0]}: found {found:g}, allowed: {allowed}, as {run.id} declares"
                )


def _values(place: str, cells: Mapping[str, str]) -> Values:
    values = {ours: to_number(cells[theirs], place, theirs) for ours, theirs in _COLUMNS.items()}
    to_count(values["epoch"], place, "Epoch")
    return values


def _read_rank(file: Path, run: Run) -> _Rank:
    rank = _Rank(file)
    for place, values in rows(file, run):
        _add(rank, place, values, run)
    if not rank.top1:
        raise LogError(f"{file}: no validation rows, allowed: one per epoch, with itr -1")
    return rank


def _add(rank: _Rank, place: str, values: Values, run: Run) -> None:
    """Add one row; if a step was logged twice, the later row replaces the earlier one."""
    epoch = int(values["epoch"])
    if values["step"] == -1:
        ended = (epoch + 1) * run.steps_per_epoch
        if ended not in rank.training:
            allowed = f"after the row of itr {run.steps_per_epoch - 1}, the last of an epoch of {run.id}"
            raise LogError(f"{place}: found validation of epoch {epoch}, allowed: {allowed}")
        if epoch + 1 in rank.top1:
            raise LogError(f"{place}: found epoch {epoch} again, allowed: one validation per epoch")
        rank.top1[epoch + 1] = values["val_top1"]
        return
    itr = to_count(values["step"], place, "itr")
    if itr >= run.steps_per_epoch:
        allowed = f"0 to {run.steps_per_epoch - 1}, the steps of an epoch of {run.id}"
        raise LogError(f"{place}: column 'itr': found {itr}, allowed: {allowed}")
    step = epoch * run.steps_per_epoch + itr + 1
    if step < next(reversed(rank.training), 0):
        raise LogError(f"{place}: found epoch {epoch}, itr {itr} after a later one, allowed: increasing steps")
    rank.training[step] = values


def _evaluations(ranks: Sequence[_Rank], run: Run) -> list[Values]:
    """One row per epoch; the mean time per step is over all steps so far."""
    found = []
    for epoch in sorted(ranks[0].top1):
        step = epoch * run.steps_per_epoch
        ended = [rank.training[step] for rank in ranks]
        top1 = [rank.top1[epoch] for rank in ranks]
        found.append(
            {
                "step": step,
                "epoch": float(epoch),
                **{name: mean(row[name] for row in ended) for name in TRAINING_MEANS},
                "worker_val_top1_mean": mean(top1),
                "worker_val_top1_min": min(top1),
                "worker_val_top1_max": max(top1),
                "training_seconds": step * mean(row["batch_seconds"] for row in ended),
            }
        )
    return found


def _steps(ranks: Sequence[_Rank], run: Run) -> list[Values]:
    untimed = UNTIMED_STEPS if _starts_untimed(ranks) else 0
    found = []
    for step in sorted(ranks[0].training):
        row: Values = {
            "step": step,
            "epoch": step / run.steps_per_epoch,
            "step_loss": mean(rank.training[step]["loss"] for rank in ranks),
        }
        if (step - 1) % run.steps_per_epoch >= untimed:
            row["step_data_seconds"] = mean(rank.training[step]["data_seconds"] for rank in ranks)
        found.append(row)
    return found


def _starts_untimed(ranks: Sequence[_Rank]) -> bool:
    """Whether the first row has no time: the version of the code that produced the paper measures every step."""
    return all(next(iter(rank.training.values()))["batch_seconds"] == 0 for rank in ranks)
