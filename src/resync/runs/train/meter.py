"""The numbers logged for a step or an evaluation: position, losses, norms, seconds and bytes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import nan

import torch
from torch import Tensor

from resync.runs.train.session import Session

Totals = dict[str, float]


@dataclass
class Step:
    """The outcome of the step with this number, and whether it is sampled, that is logged.

    The gradients' norms [k] are needed in sampled steps only.
    """

    number: int
    sampled: bool
    gradient_norms: Tensor | None = None
    ended_round: bool = False


@contextmanager
def metered_step(session: Session, lr: float) -> Iterator[Step]:
    """Measure the block as one step with the learning rate `lr`, and log every `log.every_steps`-th step.

    The block must set the outcome, and add the losses. Raises Diverged at a logged step, on all processes, if any loss
    so far has been NaN or infinite. With asynchronous workers, what is logged is of this process's worker, and nothing
    is checked before the next evaluation.
    """
    number = session.sync.next_steps
    step = Step(number, sampled=number > session.sync.steps and number % session.run.log.every_steps == 0)
    before = totals(session) if step.sampled else {}
    with session.clocks.measure("step"):
        yield step
    if step.sampled:
        if not session.sync.asynchronous:
            session.losses.check(session.transport)
        spent = {name: total - before[name] for name, total in totals(session).items()}
        row = {**position(session, lr), **_of_workers(session, step), **_step_columns(session, spent)}
        if session.log:
            session.log.step(row)
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


def _of_workers(session: Session, step: Step) -> Totals:
    """Loss, norms and loss scale of a sampled step over all workers, by the columns of steps.csv.

    Collective; with asynchronous workers, they are of the local ones.
    """
    assert step.gradient_norms is not None
    losses = session.losses.latest[:, 0]
    lengths = torch.linalg.vector_norm(session.sync.own_rows(), dim=1)
    values = {"step_loss": losses, "gradient_norm": step.gradient_norms, "parameter_norm": lengths}
    if scales := session.engine.loss_scales:
        values["loss_scale"] = scales.scales.to(losses.device)
    gathered = torch.stack([value.double() for value in values.values()], 1)
    if not session.sync.asynchronous:
        gathered = session.transport.gather(gathered)
    means = dict(zip(values, gathered.mean(0).tolist(), strict=True))
    return means | ({"loss_scale": gathered[:, -1].min().item()} if scales else {})


def _step_columns(session: Session, spent: Totals) -> Totals:
    """Seconds and bytes of a step, by the columns of steps.csv; an unknown time is NaN."""
    known = session.transport.communication_is_known
    return {
        # Its batch was made before the step began.
        "step_data_seconds": session.clocks.latest("data"),
        "step_compute_seconds": spent["step"] - (spent["communication"] if known else 0.0),
        "step_communication_seconds": spent["communication"] if known else nan,
        "step_bytes": spent["bytes_sent"],
    }
