"""What a model is trained for and how it is scored."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Classification:
    """Cross entropy and top-1 accuracy; the forward pass under autocast to `half`, if that is given."""

    label_smoothing: float = 0.0
    half: torch.dtype | None = None
    best: ClassVar[dict[str, Callable[..., float]]] = {"val_loss": min, "val_top1": max}
    """The metrics of an evaluation and which of two values is the better one."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean training loss of a batch: inputs [b, ...], targets [b]."""
        return F.cross_entropy(self.logits(model, inputs), targets, label_smoothing=self.label_smoothing)

    def logits(self, model: nn.Module, inputs: Tensor) -> Tensor:
        """The model's answer [b, classes] in float32."""
        with torch.autocast(inputs.device.type, self.half, enabled=self.half is not None):
            return model(inputs).float()

    def sums(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Summed loss (without smoothing), correct predictions and samples of a batch, float64 [3]."""
        logits = self.logits(model, inputs)
        loss = F.cross_entropy(logits, targets, reduction="sum")
        correct = (logits.argmax(1) == targets).sum()
        return torch.stack([loss.double(), correct.double(), loss.new_tensor(len(targets)).double()])

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Validation loss (nats) and top-1 (percent) from the sums of all batches."""
        loss, correct, samples = sums.tolist()
        return {"val_loss": loss / samples, "val_top1": 100 * correct / samples}
