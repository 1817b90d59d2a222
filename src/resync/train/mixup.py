"""Mixup: training on weighted means of two samples and of their labels."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from resync.data.sampling import WHOLE, Share
from resync.streams import stream


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
        batches = enumerate(zip(inputs, targets, strict=True), start=first_worker)
        mixed = [self._of(*batch, step, worker) for worker, batch in batches]
        return torch.stack([samples for samples, _ in mixed]), torch.stack([labels for _, labels in mixed])

    def _of(self, inputs: Tensor, targets: Tensor, step: int, worker: int) -> tuple[Tensor, Tensor]:
        generator = stream(self.seed, "mixup", worker=worker, epoch=step)
        samples = self.share.number * len(targets)
        own = self.share.of(samples)
        parts = np.split(np.arange(samples), self.micro_batches)
        z = generator.beta(self.alpha, self.alpha, size=len(parts))
        lambdas = np.minimum(z, 1 - z).repeat(len(parts[0])).astype(np.float32)
        partners = np.concatenate([generator.permutation(part) for part in parts])
        lam = torch.from_numpy(lambdas[own]).to(inputs.device)
        partner = torch.from_numpy(partners[own] - own.start).to(inputs.device)
        labels = F.one_hot(targets, self.num_classes).to(inputs.dtype)
        return _mean(inputs, partner, lam), _mean(labels, partner, lam)


def _mean(values: Tensor, partner: Tensor, lam: Tensor) -> Tensor:
    """Means of `values` [b, ...] and those of their partners [b], in which the latter have the weight `lam` [b]."""
    return torch.lerp(values, values[partner], lam.view(-1, *(1,) * (values.ndim - 1)))
