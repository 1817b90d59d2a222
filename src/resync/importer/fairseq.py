"""The log of the original SGP code's Transformer (Assran et al. 2019): what fairseq prints, each line with its rank.

    0: | epoch 001 | loss 9.123 | nll_loss 8.456 | ... | num_updates 1000 | lr 0.000125 | ... | train_wall 512
    0: | epoch 001 | valid on 'valid' subset | valid_loss 6.1 | valid_nll_loss 4.532 | ... | num_updates 1000

Of the lines with `valid_nll_loss` and `num_updates`, which are evaluations, the loss is read, in bits per token: every
node scores its part of the validation set with its own model, so it is a mean over the workers' own models. Where
several subsets are scored, those other than `valid` are left out. Of the lines with `train_wall` and `num_updates`, at
the end of an epoch, the seconds of training without validation are read, the learning rate, and the training loss with
label smoothing, in bits. Values are averaged over the ranks in the log; lines without a rank are those of rank 0.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resync.config import Run
from resync.importer.log import ImportedLog, LogError, Values, read_text, to_count, to_number
from resync.importer.sgp import mean

BIT = math.log(2)
"""A bit in nats."""

_RANK = re.compile(r"\s*\[?(\d+)\]?:?\s*(?=\|)")
_SUBSET = re.compile(r"\| valid on '([^']*)' subset")
_ENTRY = re.compile(r"\s*([a-z]\w*)[ =]+(\S+)\s*")
_TRAINING = {"loss": ("train_loss", BIT), "lr": ("lr", 1.0), "train_wall": ("training_seconds", 1.0)}
"""What is read of a line of training: our name, and the factor to our unit."""


@dataclass
class _Rank:
    """The lines of a rank by step: losses of validation in bits, and values of training in our units."""

    validation: dict[int, float] = field(default_factory=dict)
    training: dict[int, Values] = field(default_factory=dict)


def read(files: Sequence[Path], run: Run) -> ImportedLog:
    """The evaluations in the log.

    Raises LogError for a log without one, for two of the same step, and for ranks that differ in their steps.
    """
    ranks: dict[int, _Rank] = {}
    for file in files:
        for number, line in enumerate(read_text(file).splitlines(), start=1):
            _add(ranks, f"{file}:{number}", line)
    found = [rank for _, rank in sorted(ranks.items()) if rank.validation]
    if not found:
        raise LogError(
            f"{files[0]}: no line with valid_nll_loss and num_updates of the subset 'valid', allowed: the log of a "
            "validated training"
        )
    numbers = [number for number, rank in ranks.items() if rank.validation]
    if max(numbers) >= run.workers:
        raise LogError(
            f"{files[0]}: found rank {max(numbers)}, allowed: 0 to {run.workers - 1}, the workers of {run.id}"
        )
    for number, rank in zip(sorted(numbers), found, strict=True):
        if rank.validation.keys() != found[0].validation.keys():
            raise LogError(
                f"{files[0]}: rank {number}: validated at other steps than rank {min(numbers)}, allowed: the same"
            )
    return ImportedLog([_row(found, step, run) for step in sorted(found[0].validation)], [])


def _add(ranks: dict[int, _Rank], place: str, line: str) -> None:
    """Add what a line says, if it is one of validation or of a whole epoch of training."""
    prefix = _RANK.match(line)
    entries = dict(_entries(line))
    if "num_updates" not in entries:
        return
    step = to_count(to_number(entries["num_updates"], place, "num_updates"), place, "num_updates")
    rank = ranks.setdefault(int(prefix[1]) if prefix else 0, _Rank())
    if "valid_nll_loss" in entries:
        subset = _SUBSET.search(line)
        if subset and subset[1] != "valid":
            return
        loss = to_number(entries["valid_nll_loss"], place, "valid_nll_loss")
        if rank.validation.setdefault(step, loss) != loss:
            found = f"found valid_nll_loss {loss:g} after {rank.validation[step]:g}"
            raise LogError(f"{place}: {found}, both of step {step}, allowed: one validation per step")
    elif "train_wall" in entries:
        rank.training[step] = {
            ours: factor * to_number(entries[theirs], place, theirs)
            for theirs, (ours, factor) in _TRAINING.items()
            if theirs in entries
        }


def _entries(line: str) -> Iterator[tuple[str, str]]:
    """The names and values between bars; a line of progress within an epoch has commas, and is left out."""
    for part in line.split("|"):
        entry = _ENTRY.fullmatch(part)
        if entry:
            yield entry[1], entry[2]


def _row(ranks: Sequence[_Rank], step: int, run: Run) -> Values:
    row: Values = {"step": step, "epoch": step / run.steps_per_epoch}
    trained = [rank.training[step] for rank in ranks if step in rank.training]
    common = set.intersection(*(set(values) for values in trained)) if trained else set()
    row |= {name: mean(values[name] for values in trained) for name, _ in _TRAINING.values() if name in common}
    return row | {"worker_val_loss_mean": BIT * mean(rank.validation[step] for rank in ranks)}
