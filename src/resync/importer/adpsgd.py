"""AD-PSGD's CSV logs in the original SGP code (Assran et al. 2019), which `resync.importer.sgp` describes.

No rank waits for another, so ranks have made different numbers of steps at any time. Progress, learning rate and end of
the training follow from the steps of all ranks together: periodic rows have the epoch and step of this global count,
but the row at the end of an epoch has those of its rank, with `itr` the last step of an epoch. Nothing is validated.

The n-th row of the result stands for the end of the n-th global epoch: the means that each rank has logged at the end
of its own last epoch, averaged over the ranks that have finished one. All ranks have then trained for the same time T,
rank r with a mean time of t_r per step. They have made sum over r of T / t_r steps, which are known, so T follows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from resync.config import Run
from resync.importer.log import ImportedLog, LogError, Values
from resync.importer.sgp import TRAINING_MEANS, by_rank, mean, rows


@dataclass(frozen=True)
class _Progress:
    """What a rank had logged when a global epoch ended: its mean time per step, and the row of its own last epoch."""

    batch_seconds: float
    ended: Values | None


def read(files: Sequence[Path], run: Run) -> ImportedLog:
    """The log of all ranks of a run. Raises LogError for a file of another run, a missing rank or an early end."""
    ranks = [_read_rank(file, run) for file in by_rank(files, run)]
    return ImportedLog([_row([rank[epoch] for rank in ranks], epoch + 1, run) for epoch in range(run.epochs)], [])


def _read_rank(file: Path, run: Run) -> list[_Progress]:
    """The rank's progress at the end of every global epoch."""
    found: list[_Progress] = []
    seconds, ended, epoch = 0.0, None, 0
    for place, values in rows(file, run):
        if values["step"] == -1:
            raise LogError(f"{place}: found a validation row, allowed in a log of AD-PSGD: training rows")
        if values["step"] == run.steps_per_epoch - 1:
            ended = values
        else:
            if values["epoch"] < epoch:
                allowed = f"{epoch} or later, as in the periodic row before"
                raise LogError(f"{place}: column 'Epoch': found {values['epoch']:g}, allowed: {allowed}")
            found += [_Progress(seconds, ended)] * (int(values["epoch"]) - epoch)
            epoch = int(values["epoch"])
        seconds = values["batch_seconds"]
    if epoch < run.epochs - 1:
        raise LogError(f"{file}: ends in epoch {epoch}, allowed: {run.epochs - 1}, the last one of {run.id}")
    if seconds == 0:
        raise LogError(f"{file}: column 'avg:BT(s)': found 0 in the last row, allowed: a number > 0")
    return [*found, _Progress(seconds, ended)][: run.epochs]


def _row(ranks: Sequence[_Progress], epoch: int, run: Run) -> Values:
    step = epoch * run.steps_per_epoch
    row: Values = {"step": step, "epoch": float(epoch)}
    if all(rank.batch_seconds > 0 for rank in ranks):
        row["training_seconds"] = step / mean(1 / rank.batch_seconds for rank in ranks)
    ended = [rank.ended for rank in ranks if rank.ended]
    return row | {name: mean(values[name] for values in ended) for name in TRAINING_MEANS if ended}
