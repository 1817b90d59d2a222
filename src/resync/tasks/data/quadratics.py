"""Random quadratic functions, one for each worker (Vogels et al. 2021, section 4.1 and appendix)."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from resync.base.errors import UserError
from resync.tasks.data.sampling import Sampler
from resync.workers.formulas.rounding import difference

DIMENSION = 10
LEAST_SINGULAR_VALUE = 0.5


@dataclass(frozen=True)
class Quadratics:
    """f(x) = mean over the n workers of |A_i x - b_i|^2, whose gradient at worker i counts half: A_i^T (A_i x - b_i).

    Attributes: `matrices` [n, d, d] and `targets` [n, d], float64.
    """

    matrices: Tensor
    targets: Tensor

    @cached_property
    def optimum(self) -> Tensor:
        return _optimum(self.matrices, self.targets.unsqueeze(-1)).squeeze(-1)

    @cached_property
    def least(self) -> float:
        return self.value(self.optimum)

    @cached_property
    def _stacked(self) -> tuple[Tensor, Tensor]:
        return self.matrices.flatten(0, 1), self.targets.flatten()

    def value(self, x: Tensor) -> float:
        matrices, targets = self._stacked
        residual = torch.mv(matrices, x).sub_(targets)
        return torch.dot(residual, residual).item() / len(self.matrices)

    def error(self, x: Tensor) -> float:
        """By how much f(x) is above the least value; 0 where that is rounding."""
        return difference(self.value(x), self.least)


@dataclass(frozen=True)
class QuadraticData:
    """The functions of these options, see `drawn`; a batch is that of every worker, whole."""

    heterogeneity: float
    distance: float
    dimension: int | None = None
    least_singular_value: float | None = None
    device: torch.device | None = None
    variant: str = "quadratics"
    verified: str = "all"
    num_train: int = 1000

    @property
    def sha256(self) -> str:
        """That of the options, since there is no file."""
        options = self.heterogeneity, self.distance, self.dimension, self.least_singular_value
        return hashlib.sha256(" ".join(str(each) for each in options if each is not None).encode()).hexdigest()

    @property
    def train_labels(self) -> NDArray[np.int64]:
        raise NotImplementedError

    def to(self, device: torch.device) -> "QuadraticData":
        return replace(self, device=device)

    def functions(self, num_workers: int, seed: int) -> Quadratics:
        made = drawn(
            num_workers, seed, self.heterogeneity, self.distance,
            self.dimension or DIMENSION, self.least_singular_value or LEAST_SINGULAR_VALUE,
        )  # fmt: skip
        return Quadratics(made.matrices.to(self.device), made.targets.to(self.device))

    def batches(self, sampler: Sampler, epoch: int, first_step: int, workers: slice) -> Iterator[tuple[Tensor, Tensor]]:
        """The matrices [k, 1, d, d] and targets [k, 1, d] of the workers, in every step the same."""
        functions = self.functions(sampler.num_workers, sampler.seed)
        batch = functions.matrices[workers].unsqueeze(1), functions.targets[workers].unsqueeze(1)
        return repeat(batch, sampler.steps - first_step)

    def validation(self, rank: int, world_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """None: what is evaluated is the mean of the workers' functions."""
        return iter(())

    def statistics_batch(self, seed: int, epoch: int, index: int, batch_size: int) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing: there are no processes."""


build = QuadraticData


def drawn(
    num_workers: int, seed: int, heterogeneity: float, distance: float,
    dimension: int = DIMENSION, least: float = LEAST_SINGULAR_VALUE,
) -> Quadratics:  # fmt: skip
    """The functions of a seed, drawn from torch's generator in the order of the paper's code.

    The singular values of each A_i are `dimension` numbers from `least` to 1. The mean of |A_i^T (A_i x - b_i)|^2 at
    the optimum is `heterogeneity`, to 1e-5; `distance` is that of the optimum from 0, where all workers start. Raises
    ValueError for a heterogeneity of one worker, whose gradient is 0 at its own optimum.
    """
    if heterogeneity and num_workers == 1:
        raise UserError(f"data quadratics: heterogeneity: found {heterogeneity} with 1 worker, allowed: 0")
    generator = torch.Generator().manual_seed(seed)
    draw = [(num_workers, dimension, dimension), (num_workers, dimension, 1), (dimension, 1)]
    raw, offsets, direction = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in draw)
    left, _, right = torch.linalg.svd(raw)
    values = torch.linspace(least, 1, dimension, dtype=torch.float64)
    matrices = left @ torch.diag(values) @ right
    targets = _heterogeneous(matrices, offsets, heterogeneity) + matrices @ (direction * (distance / direction.norm()))
    return Quadratics(matrices, targets.squeeze(-1))


def _heterogeneous(matrices: Tensor, offsets: Tensor, wanted: float) -> Tensor:
    """Targets [n, d, 1] with the optimum at 0 and this mean square of the workers' gradients there.

    The scale of the offsets is found by the bisection of the paper's code, which ends up to 1e-5 away.
    """
    targets = torch.zeros_like(offsets)
    scale, low, mean_square = 1.0, 0.0, 0.0
    high: float | None = None
    while wanted and abs(mean_square - wanted) > 1e-5:
        targets = matrices @ (scale * offsets)
        targets = targets - matrices @ _optimum(matrices, targets)
        residuals = matrices @ _optimum(matrices, targets) - targets
        mean_square = (matrices.mT @ residuals).square().sum().item() / len(matrices)
        if mean_square < wanted and scale > low:
            low = scale
        elif mean_square > wanted and (high is None or scale < high):
            high = scale
        scale = 2 * scale if high is None else (low + high) / 2
    return targets


def _optimum(matrices: Tensor, targets: Tensor) -> Tensor:
    """The solution [d, 1] of the normal equations."""
    return torch.linalg.solve((matrices.mT @ matrices).sum(0), (matrices.mT @ targets).sum(0))
