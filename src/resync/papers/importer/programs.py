"""The text logs of the original SGP code (Assran et al. 2019): its three programs, declared for `TextLog`.

**SGP** (also AR-SGD, D-PSGD): one CSV file per rank, `...out_r<rank>_n<world size>.csv`, with the lines BEGIN-TRAINING,
World-Size, Num-DLWorkers and Batch-Size (per node), a header and rows. In a training row, `val` is -1 and `itr` counts
the steps of an epoch from 0; the last step of every epoch has a row. A validation row, one per epoch, has `itr` -1 and
in `val` the top-1 accuracy of the rank's own model with its own BatchNorm statistics on the whole validation set. As in
the paper's figures, the training time is the number of steps times the mean time per step.

**AD-PSGD**: the same files, but no rank waits for another, so ranks have made different numbers of steps at any time.
Periodic rows have the epoch of the global count of steps, but the row at the end of an epoch has that of its rank, with
`itr` the last step of an epoch. Nothing is validated. The n-th row of the result stands for the end of the n-th global
epoch, with the means that each rank has logged at the end of its own last epoch. All ranks have then trained for the
same time T, rank r with a mean time of t_r per step: they have made sum over r of T / t_r steps, from which T follows.

**Transformer** (fairseq), each line with its rank:

    0: | epoch 001 | loss 9.123 | nll_loss 8.456 | ... | num_updates 1000 | lr 0.000125 | ... | train_wall 512
    0: | epoch 001 | valid on 'valid' subset | valid_loss 6.1 | valid_nll_loss 4.532 | ... | num_updates 1000

Later versions of fairseq leave `valid_` out. Losses are in bits per token, that of the training with label smoothing,
and `train_wall` is in seconds without validation. Every node scores its part of the validation set, with its own model.

A job that was killed and started again takes the steps since its last checkpoint once more, and appends to its log: of
a step that was logged twice, the later values count.
"""

import math
import re

from resync.papers.importer.log import ImportedLog, LogError, Values, again, same, to_count
from resync.papers.importer.text_log import Rows, TextLog
from resync.runs.run import Run

UNTIMED_STEPS = 10
"""Number of steps at the start of an epoch whose times only the later version of SGP's code (2023) leaves out."""

BIT = math.log(2)
"""A bit in nats."""

_MEANS = {"train_loss": "avg:Loss", "train_top1": "avg:Prec@1", "train_top5": "avg:Prec@5"}
"""Our metrics that are running means over the epoch in training rows."""


def _sgp(rows: Rows, run: Run) -> ImportedLog:
    """A row of metrics per epoch, and sampled steps; a job that was started again begins with an epoch."""
    training: dict[int, Values] = {}
    metrics: dict[int, Values] = {}
    repeated: dict[int, None] = {}
    for place, values in rows:
        epoch = to_count(values["Epoch"], place, "Epoch")
        if values["itr"] == -1:
            step = (epoch + 1) * run.steps_per_epoch
            if step not in training or step in metrics:
                raise LogError(
                    f"{place}: found validation of epoch {epoch}, allowed: once, after the row of itr "
                    f"{run.steps_per_epoch - 1}, the last of an epoch of {run.id}"
                )
            ended = training[step]
            metrics[step] = {
                **_position(step, run),
                **{ours: ended[theirs] for ours, theirs in _MEANS.items()},
                "training_seconds": step * ended["avg:BT(s)"],
                "worker_val_top1_mean": values["val"],
            }
            continue
        itr = to_count(values["itr"], place, "itr")
        step = epoch * run.steps_per_epoch + itr + 1
        last = next(reversed(training), 0)
        if itr >= run.steps_per_epoch or (step < last and itr):
            raise LogError(
                f"{place}: found epoch {epoch}, itr {itr}, allowed: itr 0 to {run.steps_per_epoch - 1}, the steps of "
                f"an epoch of {run.id}, in increasing order"
            )
        if step < last or (step == last and itr == 0):
            repeated[step] = None
            _forget(step, training, metrics)
        training[step] = values
    # The first row has no time: the version of the code that produced the paper measures every step.
    untimed = UNTIMED_STEPS if training and next(iter(training.values()))["avg:BT(s)"] == 0 else 0
    steps = []
    for step, values in sorted(training.items()):
        timed = (step - 1) % run.steps_per_epoch >= untimed
        seconds = {"step_data_seconds": values["DT(s)"]} if timed else {}
        steps.append(_position(step, run) | {"step_loss": values["Loss"]} | seconds)
    return ImportedLog([metrics[step] for step in sorted(metrics)], steps, tuple(map(again, repeated)))


def _forget(step: int, *tables: dict[int, Values]) -> None:
    """Delete the rows from a step on, which a later job takes again."""
    for table in tables:
        for forgotten in [number for number in table if number >= step]:
            del table[forgotten]


def _adpsgd(rows: Rows, run: Run) -> ImportedLog:
    """A row of metrics per global epoch: the rank's mean time so far, and the means at the end of its last epoch."""
    metrics: list[Values] = []
    ended: Values = {}
    seconds = 0.0
    notes: list[str] = []
    for place, values in rows:
        epoch = to_count(values["Epoch"], place, "Epoch")
        if values["itr"] == -1:
            raise LogError(f"{place}: found a validation row, allowed in a log of AD-PSGD: training rows")
        if values["itr"] == run.steps_per_epoch - 1:
            ended = {ours: values[theirs] for ours, theirs in _MEANS.items()}
        elif epoch < len(metrics):
            notes.append(again(epoch * run.steps_per_epoch + 1))
            del metrics[epoch:]
        else:
            metrics += _ends(len(metrics), min(epoch, run.epochs), seconds, ended, run)
        seconds = values["avg:BT(s)"]
    place = rows[-1][0]
    if len(metrics) < run.epochs - 1:
        raise LogError(f"{place}: ends in epoch {len(metrics)}, allowed: {run.epochs - 1}, the last one of {run.id}")
    if not seconds > 0:
        raise LogError(f"{place}: column 'avg:BT(s)': found {seconds:g}, allowed: a number > 0")
    ends = _ends(len(metrics), run.epochs, seconds, ended, run)
    return ImportedLog(metrics + ends, [], tuple(dict.fromkeys(notes)))


def _ends(first: int, last: int, seconds: float, ended: Values, run: Run) -> list[Values]:
    steps = [(epoch + 1) * run.steps_per_epoch for epoch in range(first, last)]
    timed = [{"training_seconds": step * seconds} if seconds > 0 else {} for step in steps]
    return [_position(step, run) | time | ended for step, time in zip(steps, timed, strict=True)]


def _transformer(rows: Rows, run: Run) -> ImportedLog:
    """A row of metrics per validation, which later versions of fairseq give without `valid_`."""
    metrics: dict[int, Values] = {}
    training: dict[int, Values] = {}
    repeated: dict[int, None] = {}
    trained, validated = 0, False
    for place, values in rows:
        step = to_count(values["num_updates"], place, "num_updates")
        if "train_wall" in values:
            if step < trained:
                repeated[step] = None
                _forget(step, training, metrics)
            units = {"loss": ("train_loss", BIT), "lr": ("lr", 1.0), "train_wall": ("training_seconds", 1.0)}
            training[step] = {ours: unit * values[name] for name, (ours, unit) in units.items() if name in values}
            trained, validated = step, False
        elif name := next((name for name in ("valid_nll_loss", "nll_loss") if name in values), None):
            loss = BIT * values[name]
            known = metrics.get(step, {}).get("worker_val_loss_mean", loss)
            if not same(known, loss):
                if validated or step != trained:
                    raise LogError(f"{place}: found {name} again at step {step}, allowed: one validation per step")
                repeated[step] = None  # a later job has ended its epoch again
            metrics[step] = _position(step, run) | {"worker_val_loss_mean": loss}
            validated = True
    rows_of_both = [training.get(step, {}) | metrics[step] for step in sorted(metrics)]
    return ImportedLog(rows_of_both, [], tuple(map(again, repeated)))


def _position(step: int, run: Run) -> Values:
    return {"step": step, "epoch": step / run.steps_per_epoch}


_COLUMNS = ("Epoch", "itr", "avg:BT(s)", "DT(s)", "Loss", *_MEANS.values(), "val")
_FILE = re.compile(r"out_r(?P<rank>[0-9]{1,6})_n(?P<workers>[0-9]{1,6})\.csv$")
_SETTINGS = {"World-Size": "workers", "Batch-Size": "local_batch_size"}

SGP = TextLog(_COLUMNS, _sgp, rank=_FILE, header="Epoch", settings=_SETTINGS)
ADPSGD = TextLog(_COLUMNS, _adpsgd, rank=_FILE, header="Epoch", settings=_SETTINGS, asynchronous=True)
TRANSFORMER = TextLog(
    ("num_updates", "valid_nll_loss", "nll_loss", "loss", "lr", "train_wall"),
    _transformer,
    rank=re.compile(r"\s*\[?(?P<rank>[0-9]{1,6})\]?:?\s*(?=\|)"),
    entry=re.compile(r"\|\s*(?P<name>[a-z]\w*)[ =]+(?P<value>[^\s|]+)\s*(?=\||$)"),
    left_out=re.compile(r"\| valid on '(?!valid' subset)|^(?!.*(valid on|valid_nll_loss|train_wall)).*nll_loss"),
    split=("worker_val_loss_mean",),
)
