"""The training loop, which refers to no algorithm, task or logger by name, and the rows that it logs."""

from collections.abc import Callable, Iterator, Sequence
from math import isfinite, nan
from typing import Any

import torch
from torch import Tensor

from resync.runs.train.evaluate import consensus, distance, score, score_swa, score_workers
from resync.runs.train.losses import Diverged
from resync.runs.train.saving import checkpoint_is_due, save
from resync.runs.train.session import Session
from resync.workers.sync.algorithm import Due

Totals = dict[str, float]


def train_to_end(session: Session, after_step: Callable[[], None] = lambda: None) -> None:
    """Train from the session's current step to the last one, or to an early stop, with evaluations and checkpoints.

    Calls `after_step` at the end of every step, after any evaluation and checkpoint. Raises Diverged at the first check
    that finds a loss that is NaN or infinite.
    """
    sync = session.sync
    if sync.steps == 0 and not session.resumed_from:
        evaluate(session)
        if 0 in session.checkpoints.kept:
            save(session)
    while not session.has_ended():
        for inputs, targets in batches(session):
            before = sync.steps
            round_ended = train_step(session, inputs, targets)
            if sync.steps > before and sync.steps in session.evaluation_steps:
                evaluate(session)
            if checkpoint_is_due(session, round_ended):
                session.losses.check(session.transport)
                save(session)
            after_step()
            if session.has_ended():
                break


def train_step(session: Session, inputs: Any, targets: Any) -> bool:
    """One step of every local worker, or of those whose turn it is; returns whether it ended a round.

    Logs every `log.every_steps`-th step. Raises Diverged at a logged step, on all processes, if any loss so far has
    been NaN or infinite. With asynchronous workers, what is logged is of this process's worker, and nothing is checked
    before the next evaluation.
    """
    sync, engine = session.sync, session.engine
    lr, number = session.lr(sync.lr_step), sync.next_steps
    logged = number > sync.steps and number % session.run.log.every_steps == 0
    before = totals(session) if logged else {}
    with session.clocks.measure("step"):
        sync.send_ahead()
        due = sync.due()
        if due is None:
            session.losses.add(engine.gradients(inputs, targets, sync.steps), number)
        else:
            of_workers = zip(_here(session, due), inputs, targets, strict=True)
            measured = {
                index: engine.gradient_of(index, x, y, gradient.number) for (index, gradient), x, y in of_workers
            }
            session.losses.add_some(measured, number, len(due) / session.run.workers)
        sync.after_backward()
        gradient_norms = engine.gradient_norms() if logged else None
        engine.step(lr)
        ended_round = sync.after_step(lr)
    if gradient_norms is not None:
        _log_step(session, lr, gradient_norms, before)
    return ended_round


def evaluate(session: Session) -> None:
    """Evaluate the consensus model, and the workers' own if the run says so, and log a row."""
    sync = session.sync
    session.losses.check(session.transport)
    session.engine.share_buffers()
    training = session.losses.take_means(session.transport)
    with session.clocks.measure("evaluation"):
        of_workers = distance(session) | score_workers(session)
        with consensus(session) as model:
            metrics = score(session, model)
        of_swa = score_swa(session, metrics)
    spent = totals(session)
    row = {
        **position(session, session.lr(max(0, sync.steps - 1))),
        **training,
        **metrics,
        **of_workers,
        **of_swa,
        **({} if sync.virtual_seconds is None else {"virtual_seconds": sync.virtual_seconds}),
        "bytes_sent": spent["bytes_sent"],
        "volume_percent": session.volume_percent,
        "training_seconds": spent["data"] + spent["step"],
        "communication_seconds": spent["communication"] if session.transport.communication_is_known else nan,
        "evaluation_seconds": session.clocks.seconds("evaluation"),
    }
    if session.log:
        session.log.evaluation(row)
    if not all(map(isfinite, metrics.values())):
        raise Diverged(sync.steps, worker=None)
    if sync.steps > session.run.warmup_steps:
        session.watch.observe(session.transport.broadcast(metrics["val_loss"]))


def batches(session: Session) -> Iterator[tuple[Any, Any]]:
    """The remaining batches of the current epoch for the local workers; the clock "data" counts the time they take.

    Where only some workers take a step, batches without end, each a list for those of them that are here.
    """
    if session.sync.due() is not None:
        yield from _batches_due(session)
        return
    epoch, first_step = divmod(session.sync.steps, session.run.steps_per_epoch)
    made = session.data.batches(session.sampler, epoch, first_step, session.transport.local)
    while True:
        with session.clocks.measure("data"):
            batch = next(made, None)
            if batch is None:
                return
            inputs, targets = batch
            for transform in session.transforms:
                inputs, targets = transform(inputs, targets, session.sync.steps, session.transport.local.start)
        yield inputs, targets


def _here(session: Session, due: Sequence[Due]) -> list[tuple[int, Due]]:
    """What is due of the workers of this process, with the index of each."""
    return [(index, gradient) for gradient in due for index in session.transport.here([gradient.worker])]


def _batches_due(session: Session) -> Iterator[tuple[list[Any], list[Any]]]:
    streams: dict[int, tuple[int, Iterator[tuple[Any, Any]]]] = {}

    def batch(worker: int, stream: int, number: int) -> tuple[Any, Any]:
        after, made = streams.get(stream, (-1, iter(())))
        epoch, step = divmod(number, session.run.steps_per_epoch)
        if after != number or step == 0:
            made = session.data.batches(session.sampler, epoch, step, slice(stream, stream + 1))
        inputs, targets = next(made)
        streams[stream] = number + 1, made
        for transform in session.transforms:
            inputs, targets = transform(inputs, targets, number, worker)
        return inputs[0], targets[0]

    while True:
        with session.clocks.measure("data"):
            pairs = [batch(*gradient) for _, gradient in _here(session, session.sync.due() or ())]
        yield [inputs for inputs, _ in pairs], [targets for _, targets in pairs]


def processes_meet(session: Session) -> bool:
    """Whether all processes wait for each other at the end of this step anyway, to log it or to evaluate."""
    if session.sync.asynchronous:
        return session.sync.steps in session.evaluation_steps
    return session.sync.steps % session.run.log.every_steps == 0


def _log_step(session: Session, lr: float, gradient_norms: Tensor, before: Totals) -> None:
    """Log a step with the learning rate `lr`, the norms of its gradients [k], and what `totals` was before it."""
    if not session.sync.asynchronous:
        session.losses.check(session.transport)
    spent = {name: total - before[name] for name, total in totals(session).items()}
    known = session.transport.communication_is_known
    row = {
        **position(session, lr),
        **_of_workers(session, gradient_norms),
        # Its batch was made before the step began.
        "step_data_seconds": session.clocks.latest("data"),
        "step_compute_seconds": spent["step"] - (spent["communication"] if known else 0.0),
        "step_communication_seconds": spent["communication"] if known else nan,
        "step_bytes": spent["bytes_sent"],
    }
    if session.log:
        session.log.step(row)


def position(session: Session, lr: float) -> dict[str, float | int]:
    """The position in the training, by the columns of the log."""
    sync = session.sync
    epoch = sync.steps / session.run.steps_per_epoch
    return {"step": sync.steps, "epoch": epoch, "round": sync.rounds, "h": sync.h, "lr": lr}


def totals(session: Session) -> Totals:
    """Seconds by clock, and bytes, since the start of the run."""
    seconds = {clock: session.clocks.seconds(clock) for clock in ("data", "step", "communication")}
    return seconds | {"bytes_sent": session.transport.bytes_sent}


def _of_workers(session: Session, gradient_norms: Tensor) -> Totals:
    """Loss, norms and loss scale of a logged step over all workers, by the columns of steps.csv.

    Collective; with asynchronous workers, they are of the local ones.
    """
    losses = session.losses.latest[:, 0]
    lengths = torch.linalg.vector_norm(session.sync.own_rows(), dim=1)
    values = {"step_loss": losses, "gradient_norm": gradient_norms, "parameter_norm": lengths}
    if scales := session.engine.loss_scales:
        values["loss_scale"] = scales.scales.to(losses.device)
    gathered = torch.stack([value.double() for value in values.values()], 1)
    if not session.sync.asynchronous:
        gathered = session.transport.gather(gathered)
    means = dict(zip(values, gathered.mean(0).tolist(), strict=True))
    return means | ({"loss_scale": gathered[:, -1].min().item()} if scales else {})
