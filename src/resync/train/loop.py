"""The training loop: it knows no algorithm, task or logger by name."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from math import isfinite, nan
from typing import Any

from torch import nn

from resync.train.evaluate import consensus_model, score
from resync.train.losses import Diverged
from resync.train.session import Session
from resync.train.sharpness import sharpness

Totals = dict[str, float]


def train_to_end(session: Session, after_step: Callable[[], None] = lambda: None) -> None:
    """Train from the session's step to the run's last one, or an early end, with evaluations and checkpoints.

    Calls `after_step` when everything of a step is done. Raises Diverged at the first check that finds a loss that is
    no number.
    """
    sync = session.sync
    if sync.steps == 0:
        evaluate(session)
    while not session.has_ended():
        for inputs, targets in batches(session):
            round_ended = train_step(session, inputs, targets)
            if _evaluation_is_due(session):
                evaluate(session)
            if _checkpoint_is_due(session, round_ended):
                session.losses.check(session.transport)
                session.save()
            after_step()
            if session.has_ended():
                break


def train_step(session: Session, inputs: Any, targets: Any) -> bool:
    """One step of every local worker; True when it ended a round."""
    clocks, sync = session.clocks, session.sync
    step = sync.steps + 1
    sampled = step % session.run.log.every_steps == 0
    before = _totals(session) if sampled else {}
    lr = session.lr(sync.steps)
    with clocks.measure("step"):
        sync.before_forward()
        losses = session.forward_backward(inputs, targets)
        sync.after_backward()
        sync.step(lr)
        round_ended = sync.after_step(lr)
    session.losses.add(losses, step)
    if sampled:
        session.losses.check(session.transport)
        loss = session.transport.gather(losses).mean().item()
        spent = {name: total - before[name] for name, total in _totals(session).items()}
        if session.log:
            session.log.step({**_position(session, lr), "step_loss": loss, **_step_columns(session, spent)})
    if session.log:
        session.log.progress(step)
    return round_ended


def evaluate(session: Session) -> None:
    """Evaluate the consensus model and log a row; raises Diverged if its loss is no number."""
    sync = session.sync
    session.losses.check(session.transport)
    train_loss = session.losses.take_mean(session.transport)
    with session.clocks.measure("evaluation"), consensus(session) as model:
        metrics = score(model, session.objective, session.data, session.transport) | _sharpness(session, model)
    totals = _totals(session)
    row = {
        **_position(session, session.lr(max(0, sync.steps - 1))),
        "train_loss": train_loss,
        **metrics,
        "bytes_sent": totals["bytes_sent"],
        "volume_percent": session.volume_percent,
        "training_seconds": totals["data"] + totals["step"],
        "communication_seconds": totals["communication"] if session.transport.communication_is_known else nan,
        "evaluation_seconds": session.clocks.seconds("evaluation"),
    }
    if session.log:
        session.log.evaluation(row)
    if not all(map(isfinite, metrics.values())):
        raise Diverged(sync.steps, worker=None)
    if sync.steps > session.run.warmup_steps:
        session.watch.observe(session.transport.broadcast(metrics["val_loss"]))


def _sharpness(session: Session, model: nn.Module) -> dict[str, float]:
    """The sharpness at the consensus model, if the run measures it."""
    run = session.run
    if not run.evaluation.sharpness_batches:
        return {}
    of = session.objective, session.data, session.transport, run.seed, session.sync.steps
    return {"sharpness": sharpness(model, *of, run.evaluation.sharpness_batches, run.forward_batch_size)}


def consensus(session: Session) -> AbstractContextManager[nn.Module]:
    """The averaged model, ready for evaluation (see `consensus_model`)."""
    run = session.run
    return consensus_model(
        session.sync,
        session.last_models,
        session.objective,
        session.data,
        session.transport,
        run.seed,
        run.evaluation.bn_batches,
        run.forward_batch_size,
    )


def batches(session: Session) -> Iterator[tuple[Any, Any]]:
    """The rest of the current epoch for the local workers; the time to make a batch goes to the clock "data"."""
    epoch, first_step = divmod(session.sync.steps, session.run.steps_per_epoch)
    made = session.data.batches(session.sampler, epoch, first_step, session.transport.local)
    while True:
        with session.clocks.measure("data"):
            batch = next(made, None)
            if batch is None:
                return
            inputs, targets = batch
            if session.label_noise:
                targets = session.label_noise(targets, session.sync.steps, session.transport.local.start)
            if session.mixup:
                inputs, targets = session.mixup(inputs, targets, session.sync.steps, session.transport.local.start)
        yield inputs, targets


def _evaluation_is_due(session: Session) -> bool:
    run, steps = session.run, session.sync.steps
    return steps % (run.evaluation.every_epochs * run.steps_per_epoch) == 0 or steps == run.total_steps


def _checkpoint_is_due(session: Session, round_ended: bool) -> bool:
    at_round = round_ended and session.sync.rounds % session.run.checkpoint.every_rounds == 0
    return at_round or session.has_ended()


def _position(session: Session, lr: float) -> dict[str, float | int]:
    sync = session.sync
    epoch = sync.steps / session.run.steps_per_epoch
    return {"step": sync.steps, "epoch": epoch, "round": sync.rounds, "h": sync.h, "lr": lr}


def _totals(session: Session) -> Totals:
    """Seconds by clock, and bytes, so far."""
    seconds = {clock: session.clocks.seconds(clock) for clock in ("data", "step", "communication")}
    return seconds | {"bytes_sent": session.transport.bytes_sent}


def _step_columns(session: Session, spent: Totals) -> Totals:
    """What a step has spent, by the columns of steps.csv; a time that is not known is NaN."""
    known = session.transport.communication_is_known
    return {
        "step_data_seconds": spent["data"],
        "step_compute_seconds": spent["step"] - (spent["communication"] if known else 0.0),
        "step_communication_seconds": spent["communication"] if known else nan,
        "step_bytes": spent["bytes_sent"],
    }
