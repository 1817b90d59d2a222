"""Decisions from the validation loss during training: learning-rate reductions and early stopping."""

from math import inf, isfinite
from typing import Any

import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau

from resync.runs.metrics.evaluation import EarlyStopping, Plateau


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
