"""The value of quadratic functions as a training loss, and how far it is from the smallest one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from resync.runs.train.objective import Objective
from resync.tasks.data.quadratics import QuadraticData


@dataclass(frozen=True)
class QuadraticValue(Objective):
    """|A x - b|^2 / 2 of a worker, whose gradient is half of that of the function; evaluated is the mean function."""

    num_workers: int = 1
    seed: int = 0

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Half of the value of a worker's function: matrices [1, 10, 10], targets [1, 10]."""
        return (model(inputs) - targets).square().sum() / 2

    def sums(self, models: Sequence[nn.Module], data: QuadraticData, rank: int, world_size: int) -> Tensor:
        """The value and its distance from the smallest one, [n, 2], on the first process; zeros on the others."""
        functions = data.functions(self.num_workers, self.seed)
        points = [next(model.parameters()).detach() for model in models]
        found = torch.tensor([[functions.value(x), functions.error(x)] for x in points], dtype=torch.float64)
        return found if rank == 0 else torch.zeros_like(found)

    def metrics(self, sums: Tensor) -> dict[str, Any]:
        value, error = sums.tolist()
        return {"val_loss": value, "suboptimality": error}
