"""The mean of the models that were evaluated (stochastic weight averaging, Izmailov et al. 2018, algorithm 1)."""

from typing import Any

import torch
from torch import Tensor


class IterateAverage:
    """The running mean of consensus models [P] from step `first_step` on; the same on every process."""

    def __init__(self, first_step: int) -> None:
        self.first_step = first_step
        self.count = 0
        self.mean: Tensor | None = None

    @torch.no_grad()
    def add(self, parameters: Tensor) -> Tensor:
        """Add a model and return the mean with it."""
        self.count += 1
        mean = torch.zeros_like(parameters) if self.mean is None else self.mean.to(parameters)
        self.mean = mean.lerp_(parameters, 1 / self.count)
        return self.mean

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "mean": None if self.mean is None else self.mean.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count, self.mean = state["count"], state["mean"]
