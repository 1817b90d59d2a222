"""Training losses and metrics: what a model is trained for and how it is scored."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from resync.data import Dataset


class Objective(Protocol):
    """The loss of a task and its metrics."""

    @property
    def signatures(self) -> dict[str, str]:
        """How metrics are computed that exist in several versions."""

    def loss(self, model: nn.Module, inputs: Any, targets: Any) -> Tensor:
        """The training loss of a forward pass; the mean over those of a step is the worker's loss."""

    def logits(self, model: nn.Module, inputs: Any) -> Tensor:
        """The model's answer in float32."""

    def sums(self, model: nn.Module, data: Any, rank: int, world_size: int) -> Tensor:
        """Of one process's part of the validation samples: float64, what adds up over processes to all metrics."""

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """The metrics of the sums over all processes, by their names in `resync.config.metrics`."""


@dataclass(frozen=True)
class Classification:
    """Cross entropy and top-1 accuracy; the forward pass under autocast to `half`, if that is given."""

    label_smoothing: float = 0.0
    half: torch.dtype | None = None

    @property
    def signatures(self) -> dict[str, str]:
        """None: there is one way to compute these."""
        return {}

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean training loss of a batch: inputs [b, ...], targets [b], or probabilities [b, classes]."""
        return F.cross_entropy(self.logits(model, inputs), targets, label_smoothing=self.label_smoothing)

    def logits(self, model: nn.Module, inputs: Tensor) -> Tensor:
        """The model's answer [b, classes] in float32."""
        with torch.autocast(inputs.device.type, self.half, enabled=self.half is not None):
            return model(inputs).float()

    def sums(self, model: nn.Module, data: Dataset, rank: int, world_size: int) -> Tensor:
        """Summed loss (without smoothing), correct predictions and samples, [3]."""
        total = next(model.parameters()).new_zeros(3, dtype=torch.float64)
        for inputs, targets in data.validation(rank, world_size):
            logits = self.logits(model, inputs)
            loss = F.cross_entropy(logits, targets, reduction="sum")
            correct = (logits.argmax(1) == targets).sum()
            total += torch.stack([loss.double(), correct.double(), loss.new_tensor(len(targets)).double()])
        return total

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Validation loss (nats) and top-1 (percent)."""
        loss, correct, samples = sums.tolist()
        return {"val_loss": loss / samples, "val_top1": 100 * correct / samples}
