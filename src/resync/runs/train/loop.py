"""The training loop, which refers to no algorithm, task or logger by name."""

from collections.abc import Callable, Iterator, Sequence
from math import isfinite, nan
from typing import Any

from resync.runs.train.evaluate import consensus, distance, score, score_swa, score_workers
from resync.runs.train.losses import Diverged
from resync.runs.train.meter import metered_step, position, totals
from resync.runs.train.saving import checkpoint_is_due, save
from resync.runs.train.session import Session
from resync.workers.sync.algorithm import Due


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
    """One step of every local worker, or of those whose turn it is; returns whether it ended a round."""
    sync, engine = session.sync, session.engine
    lr = session.lr(sync.lr_step)
    with metered_step(session, lr) as step:
        sync.send_ahead()
        due = sync.due()
        if due is None:
            session.losses.add(engine.gradients(inputs, targets, sync.steps), step.number)
        else:
            found = zip(_here(session, due), inputs, targets, strict=True)
            losses = {index: engine.gradient_of(index, x, y, each.number) for (index, each), x, y in found}
            session.losses.add_some(losses, step.number, len(due) / session.run.workers)
        sync.after_backward()
        if step.sampled:
            step.gradient_norms = engine.gradient_norms()
        engine.step(lr)
        step.ended_round = sync.after_step(lr)
    return step.ended_round


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
    return [(index, each) for each in due for index in session.transport.here([each.worker])]


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
            found = [batch(*each) for _, each in _here(session, session.sync.due() or ())]
        yield [inputs for inputs, _ in found], [targets for _, targets in found]


def processes_meet(session: Session) -> bool:
    """Whether all processes wait for each other at the end of this step anyway, to log it or to evaluate."""
    if session.sync.asynchronous:
        return session.sync.steps in session.evaluation_steps
    return session.sync.steps % session.run.log.every_steps == 0
