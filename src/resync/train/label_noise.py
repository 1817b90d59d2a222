"""Label noise: training labels that are randomised at every step."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from resync.data.sampling import WHOLE, Share
from resync.streams import stream


@dataclass(frozen=True)
class LabelNoise:
    """Keeps a label with probability 1 - p, and otherwise draws one of the other classes uniformly.

    The noise is independent for every sample of every step (Gu et al. 2023, section on label noise), and a function of
    the seed, the worker and the step. This process has its `share` of a worker's samples.
    """

    probability: float
    num_classes: int
    seed: int
    share: Share = WHOLE

    def __call__(self, inputs: Tensor, targets: Tensor, step: int, first_worker: int) -> tuple[Tensor, Tensor]:
        """The inputs, and noisy labels [k, b] in place of those of the workers from `first_worker` on."""
        noisy = [self._of(row, step, first_worker + index) for index, row in enumerate(targets)]
        return inputs, torch.stack(noisy)

    def _of(self, targets: Tensor, step: int, worker: int) -> Tensor:
        generator = stream(self.seed, "label-noise", worker=worker, epoch=step)
        samples = self.share.number * len(targets)
        flipped = generator.random(samples) < self.probability
        # An offset of 1 to C - 1 reaches every other class once.
        offsets = np.where(flipped, generator.integers(1, self.num_classes, size=samples), 0)
        own = torch.from_numpy(offsets[self.share.of(samples)]).to(targets.device)
        return (targets + own) % self.num_classes
