"""Generalised primal averaging."""

import torch
from torch import Tensor

from resync.workers.sync.algorithm import Algorithm, Training
from resync.workers.sync.fields import apply_decay
from resync.workers.sync.options import all_reduce


class GPAAlgorithm(Algorithm):
    """Gradients at y, optimizer steps of z, evaluation at the average x (Defazio et al. 2025, arXiv 2512.17131).

        y = mu_y x + (1 - mu_y) z
        z = optimizer(z, g(y))
        x = mu_x x + (1 - mu_x) z

    g is averaged over all workers. x, z and y are equal at the start. As in the authors' code, y and z are stored, x is
    z + (y - z) / mu_y, and decoupled weight decay changes z alone before y is averaged with it:

        z = (1 - lr decay) z
        y = mu_x y + (1 - mu_x) z - lr (1 - mu_y mu_x) u;   z = z - lr u

    `rows` are y between two steps, and z while the optimizer steps.
    """

    per_worker = ("z",)

    def __init__(self, training: Training, options: all_reduce.GPA) -> None:
        super().__init__(training)
        self.mu_x, self.mu_y = options.weight, options.mu_y
        self.z = self.rows.clone()
        self.y = self.rows.clone()

    @torch.no_grad()
    def after_backward(self) -> None:
        self.average_gradients()
        self.y.copy_(self.rows)
        self.rows.copy_(self.z)

    @torch.no_grad()
    def after_step(self, lr: float) -> bool:
        start = apply_decay(self.z, self.workers, self.optimizer)
        y = self.y.lerp_(start, 1 - self.mu_x).sub_(start - self.rows, alpha=1 - self.mu_y * self.mu_x)
        self.z.copy_(self.rows)
        self.rows.copy_(y)
        return super().after_step(lr)

    def own_rows(self) -> Tensor:
        """x."""
        return self.z + (self.rows - self.z) / self.mu_y

    def to_consensus(self, rows: Tensor) -> None:
        rows.copy_(self.own_rows())
        self.transport.mean_(rows)

    def synchronise(self) -> None:
        super().synchronise()
        self.z.copy_(self.rows)


build = GPAAlgorithm
