"""Loss scaling for fp16 that never skips a step."""

from collections.abc import Callable

import torch
from torch import Tensor

from resync.workers.engine.settings import LossScale


class LossScales:
    """One scale for each of k local workers.

    A gradient that overflows is recomputed on the same batch with a smaller scale, where torch's GradScaler would skip
    the optimizer step: if only one worker skipped a step, its rounds would no longer match those of the others
    (Gu et al. 2024, original trainer). So every worker takes every step, and workers need not agree on a scale. A scale
    grows after `interval` steps in a row without overflow; in the original, every `interval` steps whatever happened.
    """

    def __init__(self, settings: LossScale, num_local: int) -> None:
        self.settings = settings
        self.scales = torch.full((num_local,), settings.initial, dtype=torch.float64)
        self.good_steps = torch.zeros(num_local, dtype=torch.int64)

    def unscaled(self, index: int, gradient: Tensor, take: Callable[[float], Tensor]) -> Tensor:
        """Call `take(scale)`, which fills the gradient of local worker `index`, until it is finite, and unscale it.

        Returns the loss of the last attempt, or NaN if no scale gave a finite gradient.
        """
        for _ in range(1 + self.settings.retries):
            scale = self.scales[index].item()
            value = take(scale)
            gradient.div_(scale)
            if gradient.isfinite().all():
                self.good_steps[index] += 1
                if self.good_steps[index] == self.settings.interval:
                    self.scales[index] *= self.settings.growth
                    self.good_steps[index] = 0
                return value
            self.scales[index] *= self.settings.backoff
            self.good_steps[index] = 0
        return torch.full_like(value, torch.nan)

    def state_dict(self) -> dict[str, Tensor]:
        """The scales [k] and the numbers of steps since their last overflow or growth [k]."""
        return {"loss_scale": self.scales.clone(), "good_steps": self.good_steps.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.scales.copy_(state["loss_scale"])
        self.good_steps.copy_(state["good_steps"])
