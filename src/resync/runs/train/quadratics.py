"""The value of quadratic functions as a training loss, and how far it is from the smallest one."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from resync.runs.train.objective import Objective, Sums
from resync.tasks.data.quadratics import QuadraticData


@dataclass(frozen=True)
class QuadraticValue(Objective):
    """|A x - b|^2 / 2 of a worker, whose gradient is half of that of the function; evaluated is the mean function."""

    num_workers: int = 1
    seed: int = 0

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Half of the value of a worker's function: matrices [1, 10, 10], targets [1, 10]."""
        return (model(inputs) - targets).square().sum() / 2

    def sums(self, models: Sequence[nn.Module], data: QuadraticData, rank: int, world_size: int) -> Sums:
        """The value and its distance from the smallest one, [n] of n points, on the first process; zeros on others."""
        functions = data.functions(self.num_workers, self.seed)
        points = [next(model.parameters()).detach() for model in models]
        values = {
            "val_loss": [functions.value(x) for x in points],
            "suboptimality": [functions.error(x) for x in points],
            "samples": [1.0 for _ in points],
        }
        return {name: torch.tensor(numbers, dtype=torch.float64) * (rank == 0) for name, numbers in values.items()}
