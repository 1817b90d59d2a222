"""Training losses and metrics."""

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
        """The exact definitions of metrics that exist in several versions, by metric."""

    def loss(self, model: nn.Module, inputs: Any, targets: Any) -> Tensor:
        """The training loss of a forward pass; a worker's loss is the mean over the forward passes of the step."""

    def logits(self, model: nn.Module, inputs: Any) -> Tensor:
        """The model's output in float32."""

    def sums(self, model: nn.Module, data: Any, rank: int, world_size: int) -> Tensor:
        """Sums over one process's validation samples, float64; metrics follow from their sum over all processes."""

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """The metrics from the sums over all processes, by their names in `resync.config.metrics`."""


@dataclass(frozen=True)
class Classification:
    """Cross entropy and top-1 accuracy; the forward pass is under autocast to `half`, if given."""

    label_smoothing: float = 0.0
    half: torch.dtype | None = None

    @property
    def signatures(self) -> dict[str, str]:
        """Empty: these metrics have only one version."""
        return {}

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean training loss of a batch: inputs [b, ...], targets [b], or probabilities [b, classes]."""
        return F.cross_entropy(self.logits(model, inputs), targets, label_smoothing=self.label_smoothing)

    def logits(self, model: nn.Module, inputs: Tensor) -> Tensor:
        """The model's output [b, classes] in float32."""
        with torch.autocast(inputs.device.type, self.half, enabled=self.half is not None):
            return model(inputs).float()

    def sums(self, model: nn.Module, data: Dataset, rank: int, world_size: int) -> Tensor:
        """Sum of the losses (without smoothing), number of correct predictions and number of samples, [3]."""
        total = next(model.parameters()).new_zeros(3, dtype=torch.float64)
        for inputs, targets in data.validation(rank, world_size):
            logits = self.logits(model, inputs)
            loss = F.cross_entropy(logits, targets, reduction="sum")
            correct = (logits.argmax(1) == targets).sum()
            total += torch.stack([loss.double(), correct.double(), loss.new_tensor(len(targets)).double()])
        return total

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Validation loss (nats) and top-1 accuracy (percent)."""
        loss, correct, samples = sums.tolist()
        return {"val_loss": loss / samples, "val_top1": 100 * correct / samples}
