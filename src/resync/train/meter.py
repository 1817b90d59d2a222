"""The numbers of a step and of an evaluation, as the log has them: positions, losses, seconds and bytes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
    """Measure the block as one step with the learning rate `lr`, and log it where its turn has come.

    The block tells its losses. Raises Diverged at a logged step if a loss has been NaN or infinite; then all
    processes have met.
    """
    step, number = Step(), session.sync.steps + 1
    sampled = number % session.run.log.every_steps == 0
    before = totals(session) if sampled else {}
    with session.clocks.measure("step"):
        yield step
    assert step.losses is not None
    session.losses.add(step.losses, number)
    if sampled:
        session.losses.check(session.transport)
        loss = session.transport.gather(step.losses).mean().item()
        spent = {name: total - before[name] for name, total in totals(session).items()}
        if session.log:
            session.log.step({**position(session, lr), "train_loss": loss, **spent})
    if session.log:
        session.log.progress(number)


def position(session: Session, lr: float) -> dict[str, float | int]:
    """Where the training is."""
    sync = session.sync
    epoch = sync.steps / session.run.steps_per_epoch
    return {"step": sync.steps, "epoch": epoch, "round": sync.rounds, "h": sync.h, "lr": lr}


def totals(session: Session) -> Totals:
    """Seconds and bytes so far, by the names of the columns of steps.csv."""
    clocks = session.clocks
    communication = clocks.seconds("communication")
    return {
        "data_seconds": clocks.seconds("data"),
        "compute_seconds": clocks.seconds("step") - communication,
        "communication_seconds": communication,
        "bytes_sent": session.transport.bytes_sent,
    }
