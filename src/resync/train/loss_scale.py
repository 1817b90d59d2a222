"""Loss scaling for fp16 that never skips a step."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from resync.config.training import LossScale
from resync.engine.workers import Loss, Workers


class LossScales:
    """A scale for each of k local workers.

    A gradient that overflows is taken again on the same batch with a smaller scale, where torch's GradScaler would
    skip the optimizer step: a step that only one worker skips would put its rounds out of step with the others'
    (Gu et al. 2024, original trainer). So every worker makes every step, and workers need not agree on a scale.
    """

    def __init__(self, settings: LossScale, num_local: int) -> None:
        self.settings = settings
        self.scales = torch.full((num_local,), settings.initial, dtype=torch.float64)
        self.good_steps = torch.zeros(num_local, dtype=torch.int64)

    def forward_backward(
        self, workers: Workers, inputs: Sequence[Any], targets: Sequence[Any], loss: Loss, micro_batches: int
    ) -> Tensor:
        """As Workers.forward_backward; a loss is NaN where no scale gave a finite gradient."""
        batches = enumerate(zip(inputs, targets, strict=True))
        return torch.stack([self._gradient(workers, index, *batch, loss, micro_batches) for index, batch in batches])

    def worker_state(self, index: int) -> list[float]:
        """What continues local worker `index`'s scale."""
        return [self.scales[index].item(), self.good_steps[index].item()]

    def load_worker_state(self, index: int, state: list[float]) -> None:
        """Restore what `worker_state` returned."""
        self.scales[index], self.good_steps[index] = state

    def _gradient(
        self, workers: Workers, index: int, inputs: Any, targets: Any, loss: Loss, micro_batches: int
    ) -> Tensor:
        gradient = workers.grads[index]
        for _ in range(1 + self.settings.retries):
            gradient.zero_()
            scale = self.scales[index].item()
            value = workers.backward(index, inputs, targets, loss, micro_batches, scale)
            gradient.div_(scale)
            if gradient.isfinite().all():
                self._grow(index)
                return value
            self.scales[index] *= self.settings.backoff
            self.good_steps[index] = 0
        return torch.full_like(value, torch.nan)

    def _grow(self, index: int) -> None:
        self.good_steps[index] += 1
        if self.good_steps[index] == self.settings.interval:
            self.scales[index] *= self.settings.growth
            self.good_steps[index] = 0
