"""Label noise: training labels that are randomised at every step."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from resync.base.streams import stream
from resync.tasks.data.sampling import WHOLE, Share


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
        drawn = [self._offsets(targets.shape[1], step, first_worker + index) for index in range(len(targets))]
        offsets = torch.from_numpy(np.stack(drawn)).to(targets.device)
        return inputs, (targets + offsets) % self.num_classes

    def _offsets(self, own: int, step: int, worker: int) -> NDArray[np.int64]:
        """What is added to the labels of this process's `own` samples of a worker, [own]."""
        generator = stream(self.seed, "label-noise", worker=worker, epoch=step)
        samples = self.share.number * own
        flipped = generator.random(samples) < self.probability
        # An offset of 1 to C - 1 reaches every other class once.
        offsets = np.where(flipped, generator.integers(1, self.num_classes, size=samples), 0)
        return offsets[self.share.of(samples)]
