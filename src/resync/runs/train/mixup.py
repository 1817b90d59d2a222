"""Mixup: training on weighted means of two samples and of their labels."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from resync.base.streams import stream
from resync.tasks.data.sampling import WHOLE, Share


@dataclass(frozen=True)
class Mixup:
    """Mixes every sample with another one of its micro-batch, with one lambda per micro-batch (Zhang et al. 2018).

    The weight lambda of the other sample is min(z, 1 - z) with z ~ Beta(alpha, alpha), as in Gu et al. 2024 (trainer);
    lambdas and partners are functions of the seed, the worker and the step. `micro_batches` are those of a worker, of
    which this process has its `share`.
    """

    alpha: float
    num_classes: int
    micro_batches: int
    seed: int
    share: Share = WHOLE

    def __call__(self, inputs: Tensor, targets: Tensor, step: int, first_worker: int) -> tuple[Tensor, Tensor]:
        """Mixed inputs [k, b, ...] and probabilities [k, b, classes] for inputs and labels [k, b] of these workers."""
        drawn = [self._draws(inputs.shape[1], step, first_worker + index) for index in range(len(inputs))]
        # One operation over the samples of all workers, whose partners are their own.
        lam, partner = (torch.from_numpy(np.stack(draws)).to(inputs.device) for draws in zip(*drawn, strict=True))
        partner += len(targets[0]) * torch.arange(len(targets), device=inputs.device).unsqueeze(1)
        labels = F.one_hot(targets, self.num_classes).to(inputs.dtype)
        return _mean(inputs, partner, lam), _mean(labels, partner, lam)

    def _draws(self, own: int, step: int, worker: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Weights and partners of this process's `own` samples of a worker, [own]."""
        generator = stream(self.seed, "mixup", worker=worker, epoch=step)
        samples = self.share.number * own
        part = self.share.of(samples)
        parts = np.split(np.arange(samples), self.micro_batches)
        z = generator.beta(self.alpha, self.alpha, size=len(parts))
        lambdas = np.minimum(z, 1 - z).repeat(len(parts[0])).astype(np.float32)
        partners = np.concatenate([generator.permutation(micro_batch) for micro_batch in parts])
        return lambdas[part], partners[part] - part.start


def _mean(values: Tensor, partner: Tensor, lam: Tensor) -> Tensor:
    """Means of `values` [k, b, ...] and those of their partners, in which the latter have the weight `lam` [k, b]."""
    others = values.flatten(0, 1).index_select(0, partner.flatten()).view(values.shape)
    return torch.lerp(values, others, lam.view(*lam.shape, *(1,) * (values.ndim - 2)))
