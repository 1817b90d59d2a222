"""The dose of a training: how far the noise of its gradients can carry workers between averages, by its settings."""

from resync.base.errors import UserError
from resync.runs.run import Run


def dose(run: Run, steps: int | None = None) -> float:
    """D = sum over the steps of eta^2 (K - 1) / (2 B), with K workers that share a batch of B.

    It is what the drift that local steps add in the slow SDE can come to in T steps of rate eta (Gu et al. 2023). With
    momentum beta, eta is the rate divided by 1 - beta. `steps`: those that count, by default all of the run.

    Raises UserError for another optimizer than SGD.
    """
    if run.optimizer.name != "sgd":
        raise UserError(f"{run.id}: found optimizer {run.optimizer.name}, allowed for a dose: sgd")
    momentum = getattr(run.optimizer, "momentum", 0.0)
    lr = run.lr
    return (
        sum((lr(step) / (1 - momentum)) ** 2 for step in range(run.total_steps if steps is None else steps))
        * (run.workers - 1) / (2 * run.batch_size)
    )  # fmt: skip
