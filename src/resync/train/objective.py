"""What a model is trained for and how it is scored."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Classification:
    """Cross entropy and top-1 accuracy."""

    label_smoothing: float = 0.0
    best: ClassVar[dict[str, Callable[..., float]]] = {"val_loss": min, "val_top1": max}
    """The metrics of an evaluation and which of two values is the better one."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean training loss of a batch: inputs [b, ...], targets [b]."""
        return F.cross_entropy(model(inputs), targets, label_smoothing=self.label_smoothing)

    def sums(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Summed loss (without smoothing), correct predictions and samples of a batch, float64 [3]."""
        logits = model(inputs)
        loss = F.cross_entropy(logits, targets, reduction="sum")
        correct = (logits.argmax(1) == targets).sum()
        return torch.stack([loss.double(), correct.double(), loss.new_tensor(len(targets)).double()])

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Validation loss (nats) and top-1 (percent) from the sums of all batches."""
        loss, correct, samples = sums.tolist()
        return {"val_loss": loss / samples, "val_top1": 100 * correct / samples}
