"""`point`: a point of the space on which a function is defined."""

import torch
from torch import Tensor, nn

from resync.tasks.models.options import Point


class PointModel(nn.Module):
    """x, at first 0, in float64. Its output are products A x, for matrices A [b, m, n]: [b, m]."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(dimension, dtype=torch.float64))

    def forward(self, matrices: Tensor) -> Tensor:
        return matrices @ self.x


def build(input_shape: tuple[int, ...], num_classes: int, options: Point) -> nn.Module:
    """The point with one coordinate for each of the inputs."""
    return PointModel(*input_shape)


def example(input_shape: tuple[int, ...], samples: int) -> Tensor:
    """Matrices [samples, n, n]."""
    return torch.zeros(samples, *input_shape, *input_shape, dtype=torch.float64)
