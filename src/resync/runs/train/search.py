"""The search of a learning rate: trainings on quadratic functions, a row of metrics.csv for each number of workers."""

from collections.abc import Callable, Iterable, Iterator
from math import inf, isnan, nan, sqrt
from typing import cast

import torch

from resync.base.streams import stream_seed
from resync.runs.metrics.registry import NOISY_TRAININGS
from resync.runs.run import Run
from resync.runs.run.training import FinalTraining
from resync.runs.train.loop import position
from resync.runs.train.saving import save
from resync.runs.train.session import Session
from resync.tasks.data.quadratics import QuadraticData, Quadratics
from resync.tasks.models import build as build_model
from resync.tasks.models.point import PointModel
from resync.workers import sync
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.members import Members
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers
from resync.workers.formulas.rate_search import SEARCHES, measured_steps
from resync.workers.sync.algorithm import Training
from resync.workers.sync.options.base import SyncOptions

_NOISY = ("noisy_error", "noisy_error_min", "noisy_error_max")
_NO_ERROR = 1e-12
"""A final training ends with a smaller one, which is rounding."""
_LOOKS = 50
"""About so many of the errors of a final training are logged."""


class Trials:
    """Trainings of an algorithm with plain SGD, each from the start that all workers have at `workers`.

    The algorithm gets the calls of the training loop, in its order. Only the gradients of all workers are computed as
    one product, and the step is written out: a search takes a million of them. The rows of the workers have one point
    or several, [d, copies], which are trained beside one another with noise of their own; the first copy has none.
    """

    noise = 0.0
    """Root of the mean squared norm of what is added to each gradient."""

    def __init__(self, functions: Quadratics, options: SyncOptions, workers: Workers, transport: Transport) -> None:
        self.functions, self.options, self.workers, self.transport = functions, options, workers, transport
        self.shape = (*functions.targets.shape, -1)
        self.random = torch.Generator()
        self.start = workers.rows.data.clone()
        self.curvatures = functions.matrices.mT @ functions.matrices
        self.slopes = functions.matrices.mT @ functions.targets.unsqueeze(-1)
        self.steps = 0
        """Steps of all trainings so far."""

    @torch.no_grad()
    def train(self, lr: float, points: Iterable[int]) -> Iterator[tuple[int, float]]:
        """The error of the mean of the workers after each of `points`, steps in ascending order."""
        return ((point, errors[0]) for point, errors in self.train_copies(lr, points))

    @torch.no_grad()
    def train_copies(self, lr: float, points: Iterable[int]) -> Iterator[tuple[int, list[float]]]:
        """The same for all copies."""
        rows, gradients = self.workers.rows.data, self.workers.grads
        rows.copy_(self.start)
        training = Training(self.workers, self.transport, torch.optim.SGD([self.workers.rows], lr=lr))
        algorithm = sync.build(self.options, training)
        x, products = rows.view(self.shape), gradients.view(self.shape)
        for point in points:
            for _ in range(point - algorithm.steps):
                algorithm.send_ahead()
                torch.baddbmm(self.slopes, self.curvatures, x, beta=-1, out=products)
                if self.noise:
                    drawn = torch.randn(products[..., 1:].shape, generator=self.random, dtype=products.dtype)
                    products[..., 1:].add_(drawn.to(products), alpha=self.noise / sqrt(products.shape[1]))
                algorithm.after_backward()
                rows.add_(gradients, alpha=-lr)
                algorithm.after_step(lr)
                self.steps += 1
            mean = rows.clone()
            with self.transport.uncounted():
                algorithm.to_consensus(mean)
            yield point, [self.functions.error(copy.contiguous()) for copy in mean[0].view(self.shape[1:]).mT]


def search(session: Session, after_row: Callable[[], None] = lambda: None) -> None:
    """Search the learning rate for every number of workers for which that has not been done, with a row for each.

    Where there is a final training, each look at its error has a row. The workers of the session are left at the end of
    the last training, or of that which took the fewest steps. Calls `after_row` when rows are logged and in a
    checkpoint.
    """
    run = session.run
    assert run.search
    assert session.log
    done = {row["searched_workers"] for row in session.log.rows["metrics.csv"]}
    for number in [each for each in run.search.workers if each not in done]:
        with session.clocks.measure("step"):
            found, trials = _search(session, number)
            looks: list[tuple[int, dict[str, float]]] = [(trials.steps, {})]
            if run.search.final:
                looks = _train_to_end(session, trials, found["tuned_lr"], run.search.final)
        before = session.sync.steps
        session.transport.bytes_of_all += trials.transport.bytes_sent * run.workers
        for steps, look in looks:
            session.sync.steps = session.sync.rounds = before + steps
            session.log.evaluation(
                {
                    **position(session, run.lr(0)),
                    "train_loss": nan,
                    **found,
                    **look,
                    "bytes_sent": session.transport.bytes_sent,
                    "volume_percent": session.volume_percent,
                    "training_seconds": session.clocks.seconds("step"),
                    "communication_seconds": nan,
                    "evaluation_seconds": session.clocks.seconds("evaluation"),
                }
            )
        if number == run.workers:
            session.workers.rows.data.copy_(trials.workers.rows.data.view(trials.shape)[..., 0])
        save(session)
        after_row()


def _search(session: Session, number: int) -> tuple[dict[str, float], Trials]:
    """What the search for a number of workers has found, as columns of metrics.csv, after its fastest training."""
    run = session.run
    assert run.search
    options = run.sync.in_steps(run.steps_per_epoch)
    transport = Transport(Members(number), Clocks(session.clocks.device))
    functions = cast(QuadraticData, session.data).functions(number, run.seed)
    trials = Trials(functions, options, _points(run, number), transport)
    if run.search.rule == "given":
        nothing = {"tuned_steps": nan, "search_trials": 0, "search_exhausted": 0}
        return {"suboptimality": nan, "searched_workers": number, "tuned_lr": run.lr(0), **nothing}, trials
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


def _points(run: Run, number: int, copies: int = 1) -> Workers:
    """So many workers at the start, each with copies of its point."""
    [dimension] = run.facts["input_shape"]
    return Workers(build_model(run.model, (dimension * copies,), run.facts["num_classes"], run.seed), number)


def _train_to_end(
    session: Session, trials: Trials, lr: float, final: FinalTraining
) -> list[tuple[int, dict[str, float]]]:
    """The looks at a training with the rate that `trials` have found: steps of them so far, columns of metrics.csv."""
    run, number = session.run, len(trials.functions.matrices)
    if isnan(lr):
        nothing = {"final_step": 0, "final_error": nan} | dict.fromkeys(_NOISY if final.noise else (), nan)
        return [(trials.steps, nothing)]
    rate = min(lr, final.most_lr or inf)
    rate *= _delay(trials.options, number) if final.lr_by_delay else 1
    if final.weight is not None:
        trials.options = trials.options.model_copy(update={"weight": final.weight})
    if final.noise:
        trials.workers = _points(run, number, copies=1 + NOISY_TRAININGS)
        trials.start = trials.workers.rows.data.clone()
        trials.noise = final.noise
        trials.random.manual_seed(stream_seed(run.seed, "gradient noise", worker=number))
    looks = list(range(final.every, final.steps, final.every))
    looks += [final.steps] * (looks[-1] == final.steps - 1)  # the last step is looked at, too, where the one before is
    kept = looks if final.noise is None else [*looks[: -1 : max(1, len(looks) // _LOOKS)], looks[-1]]
    rows: list[tuple[int, dict[str, float]]] = []
    for step, errors in trials.train_copies(rate, kept):
        look = {"final_step": step, "final_error": errors[0]}
        if noisy := errors[1:]:
            look |= dict(zip(_NOISY, (sum(noisy) / len(noisy), min(noisy), max(noisy)), strict=True))
        rows.append((trials.steps, look))
        if not noisy and errors[0] < _NO_ERROR:
            break
    return [*rows[: -1 : max(1, len(rows) // _LOOKS)], rows[-1]]


def _delay(options: SyncOptions, number: int) -> float:
    """By how much RelaySum/Model shortens steps: one over what is left of a step of 1 that all workers take first.

    It is read where the workers differ by a deviation of less than 1e-4 (Vogels et al. 2021).
    """
    workers, transport = Workers(PointModel(1), number), Transport(Members(number), Clocks(torch.device("cpu")))
    algorithm = sync.build(options, Training(workers, transport, torch.optim.SGD([workers.rows], lr=1.0)))
    rows = workers.rows.data
    rows.add_(1)
    while True:
        algorithm.after_step(1.0)
        if number == 1 or rows.std() < 1e-4:
            return 1 / rows.mean().item()
