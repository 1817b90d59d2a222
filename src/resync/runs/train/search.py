"""The search of a learning rate: trainings on quadratic functions, a row of metrics.csv for each number of workers."""

from collections.abc import Callable, Iterable, Iterator
from math import nan
from typing import cast

import torch

from resync.runs.train.loop import position
from resync.runs.train.saving import save
from resync.runs.train.session import Session
from resync.tasks.data.quadratics import QuadraticData, Quadratics
from resync.tasks.models import build as build_model
from resync.workers import sync
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers
from resync.workers.formulas.rate_search import SEARCHES, measured_steps
from resync.workers.sync.algorithm import Training
from resync.workers.sync.options.base import SyncOptions


class Trials:
    """Trainings of an algorithm with plain SGD, each from the start that all workers have at `workers`.

    The algorithm gets the calls of the training loop, in its order. Only the gradients of all workers are computed as
    one product, and the step is written out: a search takes a million of them.
    """

    def __init__(self, functions: Quadratics, options: SyncOptions, workers: Workers, transport: Transport) -> None:
        self.functions, self.options, self.workers, self.transport = functions, options, workers, transport
        self.start = workers.rows.data.clone()
        self.curvatures = functions.matrices.mT @ functions.matrices
        self.slopes = functions.matrices.mT @ functions.targets.unsqueeze(-1)
        self.steps = 0
        """Steps of all trainings so far."""

    @torch.no_grad()
    def train(self, lr: float, points: Iterable[int]) -> Iterator[tuple[int, float]]:
        """The error of the mean of the workers after each of `points`, steps in ascending order."""
        rows, gradients = self.workers.rows.data, self.workers.grads
        rows.copy_(self.start)
        training = Training(self.workers, self.transport, torch.optim.SGD([self.workers.rows], lr=lr))
        algorithm = sync.build(self.options, training)
        x, products = rows.unsqueeze(-1), gradients.unsqueeze(-1)
        for point in points:
            for _ in range(point - algorithm.steps):
                algorithm.send_ahead()
                torch.baddbmm(self.slopes, self.curvatures, x, beta=-1, out=products)
                algorithm.after_backward()
                rows.add_(gradients, alpha=-lr)
                algorithm.after_step(lr)
                self.steps += 1
            mean = rows.clone()
            with self.transport.uncounted():
                algorithm.to_consensus(mean)
            yield point, self.functions.error(mean[0])


def search(session: Session, after_row: Callable[[], None] = lambda: None) -> None:
    """Search the learning rate for every number of workers for which that has not been done, with a row for each.

    The workers of the session are left at the end of the training that took the fewest steps. Calls `after_row` when a
    row is logged and in a checkpoint.
    """
    run = session.run
    assert run.search
    assert session.log
    for number in run.search.workers[len(session.log.rows["metrics.csv"]) :]:
        with session.clocks.measure("step"):
            found, trials = _search(session, number)
        session.sync.steps += trials.steps
        session.sync.rounds = session.sync.steps
        session.transport.bytes_of_all += trials.transport.bytes_sent * run.workers
        session.log.evaluation(
            {
                **position(session, run.lr(0)),
                "train_loss": nan,
                **found,
                "bytes_sent": session.transport.bytes_sent,
                "volume_percent": session.volume_percent,
                "training_seconds": session.clocks.seconds("step"),
                "communication_seconds": nan,
                "evaluation_seconds": session.clocks.seconds("evaluation"),
            }
        )
        if number == run.workers:
            session.workers.rows.data.copy_(trials.workers.rows.data)
        save(session)
        after_row()


def _search(session: Session, number: int) -> tuple[dict[str, float], Trials]:
    """What the search for a number of workers has found, as columns of metrics.csv, after its fastest training."""
    run = session.run
    assert run.search
    options = run.sync.in_steps(run.steps_per_epoch)
    model = build_model(run.model, run.facts["input_shape"], run.facts["num_classes"], run.seed)
    workers, transport = Workers(model, number), Transport(number, Clocks(session.clocks.device))
    trials = Trials(cast(QuadraticData, session.data).functions(number, run.seed), options, workers, transport)
    points = measured_steps(run.total_steps)
    found = SEARCHES[run.search.rule](run.lr(0), run.search.trials)
    found.run(lambda lr: trials.train(lr, points))
    error = nan
    if found.steps is not None and found.fastest_rate is not None:
        [(_, error)] = trials.train(found.fastest_rate, [found.steps])
    return {
        "suboptimality": error,
        "searched_workers": number,
        "tuned_steps": nan if found.steps is None else found.steps,
        "tuned_lr": nan if found.lr is None else found.lr,
        "search_trials": found.trials,
        "search_exhausted": int(found.exhausted),
    }, trials
