"""Losses and what follows from them: a stop if one is not finite, cuts of the learning rate, an early end."""

from collections.abc import Callable, Sequence
from itertools import groupby
from math import inf, isfinite, nan
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau

from resync.runs.metrics.evaluation import EarlyStopping, Plateau
from resync.workers.engine.engine import Measured
from resync.workers.engine.transport import Transport

_TOGETHER = 64
"""Steps after which losses are added and checked, if nobody asks earlier: in turns with a step it takes longer."""


class Diverged(Exception):
    """A loss became infinite or NaN; every process raises it at the same step.

    Attributes: `step` (completed steps) and `worker` at which it was first found; `worker` is None if it was found in
    the evaluation of the consensus model.
    """

    def __init__(self, step: int, worker: int | None) -> None:
        where = "in the evaluation of the consensus model" if worker is None else f"on worker {worker}"
        super().__init__(f"the loss is not finite at step {step} {where}")
        self.step = step
        self.worker = worker


class Losses:
    """Sums the losses of k local workers on their device, so that adding never waits for it.

    Metrics of the training batches, `further`, are summed with them; `means` computes them, [..., m], from what else
    than losses was measured, [..., *shape]. `latest` are those of every local worker's last gradient, NaN before its
    first; beyond the loss they are known if workers step apart.
    """

    def __init__(
        self,
        num_local: int,
        device: torch.device,
        further: tuple[str, ...] = (),
        means: Callable[[Tensor], Tensor] = lambda further: further,
    ) -> None:
        self.names = ("train_loss", *further)
        self.means = means
        self.sums = torch.zeros(num_local, len(self.names), dtype=torch.float64, device=device)
        self.latest = torch.full_like(self.sums, nan)
        self.count: float = 0
        self.apart = False
        self._first_bad = torch.zeros(num_local, dtype=torch.int64, device=device)
        self._waiting: list[tuple[int, Measured]] = []

    def add(self, measured: Measured, step: int) -> None:
        """Add what all local workers have measured in `step`."""
        self.latest = measured.losses.unsqueeze(1)
        self.count += 1
        self._waiting.append((step, measured))
        if len(self._waiting) == _TOGETHER:
            self._find_bad(self._add_waiting())

    def add_some(self, measured: dict[int, Measured], step: int, share: float) -> None:
        """Add what a step has measured that only the `share` of all workers has taken, by the index of local ones."""
        self.apart = True
        for index, of_worker in measured.items():
            self.latest[index] = self._columns([of_worker])[0, 0]
            self.sums[index] += self.latest[index]
            if not self.latest[index, 0].isfinite() and not self._first_bad[index]:
                self._first_bad[index] = step
        self.count += share

    def check(self, transport: Transport) -> None:
        """Raise Diverged on every process if any worker has had a loss that is NaN or infinite."""
        added = self._add_waiting()
        if not self.sums[:, 0].isfinite().all():  # else every loss in them is, too
            self._find_bad(added)
        first_bad = transport.gather(self._first_bad)
        bad = first_bad.nonzero().flatten()
        if len(bad):
            worker = int(bad[first_bad[bad].argmin()])
            raise Diverged(int(first_bad[worker]), worker)

    def _add_waiting(self) -> list[tuple[int, Measured]]:
        """Add what has not been added yet, one step after the other; returns it with its steps."""
        added, self._waiting = self._waiting, []
        for _, alike in groupby((measured for _, measured in added), _size):
            for losses in self._columns(list(alike)):
                self.sums += losses
        return added

    def _columns(self, steps: Sequence[Measured]) -> Tensor:
        """Losses and further metrics [n, k, 1 + m] of n steps with equal batches."""
        losses = torch.stack([step.losses for step in steps]).unsqueeze(2)
        further = [step.further for step in steps if step.further is not None]
        return torch.cat([losses, self.means(torch.stack(further))], 2) if further else losses

    def _find_bad(self, added: list[tuple[int, Measured]]) -> None:
        """Find the first steps with a loss that is not finite among these."""
        if added:
            bad = ~torch.stack([measured.losses for _, measured in added]).isfinite()
            steps = torch.tensor([step for step, _ in added], device=bad.device)
            first = steps[bad.int().argmax(0)]
            self._first_bad = torch.where(bad.any(0) & (self._first_bad == 0), first, self._first_bad)

    def state_dict(self) -> dict[str, Any]:
        """The sums since the last evaluation, [k, 1 + m] under "workers", and the number of steps in them."""
        self._find_bad(self._add_waiting())
        latest = {"latest": self.latest.clone()} if self.apart else {}
        return {"count": self.count, "workers": {"sum": self.sums.clone()} | latest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self.sums.copy_(state["workers"]["sum"])
        if "latest" in state["workers"]:
            self.latest.copy_(state["workers"]["latest"])

    def take_means(self, transport: Transport) -> dict[str, float]:
        """The means over all workers and steps since the last call, by metric; NaN without steps. Resets the sums."""
        self._find_bad(self._add_waiting())
        totals = transport.gather(self.sums).sum(0).tolist()
        number = self.count * transport.num_workers
        self.sums.zero_()
        self.count = 0
        return {name: total / number if number else nan for name, total in zip(self.names, totals, strict=True)}


def _size(step: Measured) -> torch.Size | None:
    """Steps of one size have equally many samples."""
    return None if step.further is None else step.further.shape


class ValidationWatch:
    """Follows the validation loss of the consensus model; without settings it decides nothing.

    Every process must observe the same losses, so that all of them reduce and stop at the same evaluation.
    """

    def __init__(self, plateau: Plateau | None, early_stopping: EarlyStopping | None) -> None:
        self._reductions = _lr_reductions(plateau) if plateau else None
        self._early_stopping = early_stopping
        self._best = inf
        self._worse = 0

    @property
    def lr_factor(self) -> float:
        """The product of all learning-rate reductions so far."""
        return float(self._reductions.optimizer.param_groups[0]["lr"]) if self._reductions else 1.0

    @property
    def stop(self) -> bool:
        return self._early_stopping is not None and self._worse >= self._early_stopping.patience

    def observe(self, loss: float) -> None:
        """Observe the loss of an evaluation; one that is NaN or infinite is not an improvement."""
        if self._reductions:
            self._reductions.step(loss if isfinite(loss) else inf)
        if self._early_stopping:
            # Equality counts as an improvement, as in the guide's code.
            improved = loss <= self._best - self._early_stopping.min_delta
            self._best = loss if improved else self._best
            self._worse = 0 if improved else self._worse + 1

    def state_dict(self) -> dict[str, Any]:
        return {
            "lr_reductions": self._reductions.state_dict() if self._reductions else None,
            "lr_factor": self.lr_factor,
            "best": self._best,
            "worse": self._worse,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._reductions:
            self._reductions.load_state_dict(state["lr_reductions"])
            self._reductions.optimizer.param_groups[0]["lr"] = state["lr_factor"]
        self._best, self._worse = state["best"], state["worse"]


def _lr_reductions(settings: Plateau) -> ReduceLROnPlateau:
    """torch's scheduler on a learning rate of 1, so that its reductions yield the factor on the schedule."""
    one = SGD([torch.zeros(1)], lr=1.0)
    return ReduceLROnPlateau(one, factor=settings.factor, patience=settings.patience, eps=0.0)
