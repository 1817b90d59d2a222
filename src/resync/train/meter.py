"""The numbers logged for a step or an evaluation: position, losses, seconds and bytes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import nan

from torch import Tensor

from resync.train.session import Session

Totals = dict[str, float]


@dataclass
class Step:
    """The outcome of a step: the losses of the local workers [k], and whether it ended a round."""

    losses: Tensor | None = None
    ended_round: bool = False


@contextmanager
def metered_step(session: Session, lr: float) -> Iterator[Step]:
    """Measure the block as one step with the learning rate `lr`, and log every `log.every_steps`-th step.

    The block must set `losses` and `ended_round`. Raises Diverged at a logged step, on all processes, if any loss so
    far has been NaN or infinite. Where workers run free, the loss is that of this process's worker, and nothing is
    checked before the next evaluation.
    """
    step, number = Step(), session.sync.steps + 1
    sampled = number % session.run.log.every_steps == 0
    before = totals(session) if sampled else {}
    with session.clocks.measure("step"):
        yield step
    assert step.losses is not None
    session.losses.add(step.losses, number)
    if sampled:
        losses = step.losses
        if not session.sync.runs_free:
            session.losses.check(session.transport)
            losses = session.transport.gather(losses)
        spent = {name: total - before[name] for name, total in totals(session).items()}
        if session.log:
            loss = losses.mean().item()
            session.log.step({**position(session, lr), "step_loss": loss, **_step_columns(session, spent)})
    if session.log:
        session.log.progress(number)


def position(session: Session, lr: float) -> dict[str, float | int]:
    """The position in the training, by the columns of the log."""
    sync = session.sync
    epoch = sync.steps / session.run.steps_per_epoch
    return {"step": sync.steps, "epoch": epoch, "round": sync.rounds, "h": sync.h, "lr": lr}


def totals(session: Session) -> Totals:
    """Seconds by clock, and bytes, since the start of the run."""
    seconds = {clock: session.clocks.seconds(clock) for clock in ("data", "step", "communication")}
    return seconds | {"bytes_sent": session.transport.bytes_sent}


def _step_columns(session: Session, spent: Totals) -> Totals:
    """Seconds and bytes of a step, by the columns of steps.csv; an unknown time is NaN."""
    known = session.transport.communication_is_known
    return {
        "step_data_seconds": spent["data"],
        "step_compute_seconds": spent["step"] - (spent["communication"] if known else 0.0),
        "step_communication_seconds": spent["communication"] if known else nan,
        "step_bytes": spent["bytes_sent"],
    }
