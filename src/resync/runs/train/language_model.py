"""Training loss and metrics of a language model of characters, and what it writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from resync.base.streams import stream
from resync.runs.train.objective import Objective, Sums
from resync.workers.engine.transport import Transport


def _total_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").double()


@dataclass(frozen=True)
class LanguageModel(Objective):
    """Cross entropy per character; in validation without smoothing, and in bits too."""

    summed: ClassVar[Mapping[str, Callable[[Tensor, Tensor], Tensor]]] = {"val_loss": _total_loss}

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss over all places of a batch of windows: inputs and targets [b, T]."""
        logits = self.logits(model, inputs).flatten(0, 1)
        return F.cross_entropy(logits, targets.flatten(), label_smoothing=self.label_smoothing)

    def training_losses(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """The losses of k workers, [k], from inputs and targets [k, b, T] and a model with such outputs."""
        logits, labels = self.logits(model, inputs).flatten(0, 2), targets.flatten()
        losses = F.cross_entropy(logits, labels, label_smoothing=self.label_smoothing, reduction="none")
        return losses.view(len(targets), -1).mean(1)

    def samples(self, targets: Tensor) -> int:
        """The number of characters."""
        return targets.numel()

    def metrics(self, sums: Sums) -> dict[str, float]:
        metrics = super().metrics(sums)
        return metrics | {"val_bits_per_character": metrics["val_loss"] / log(2)}


def estimated_loss(
    model: nn.Module, objective: Objective, data: Any, transport: Transport, seed: int, step: int, batches: int,
    batch_size: int,
) -> float:  # fmt: skip
    """The mean loss of `model` on `batches` batches of random validation windows, in nats.

    nanoGPT's estimate: the windows are other ones in every evaluation. Batches are divided among the processes; they
    do not depend on their number.
    """
    total = torch.zeros((), dtype=torch.float64, device=next(model.parameters()).device)
    for index in range(transport.rank, batches, transport.world_size):
        inputs, targets = data.random_validation(seed, step, index, batch_size)
        total += _total_loss(objective.logits(model, inputs), targets) / targets.numel()
    return transport.sum_(total).item() / batches


@torch.no_grad()
def sample(model: nn.Module, objective: Objective, data: Any, seed: int, length: int) -> str:
    """`length` characters that the model, in evaluation mode, writes after a new line, each drawn from its softmax."""
    draws = stream(seed, "sample").random(length)
    ids = [max(0, data.alphabet.find("\n"))]
    for draw in draws:
        window = torch.tensor([ids[-data.context :]], device=next(model.parameters()).device)
        probabilities = objective.logits(model, window)[0, -1].double().softmax(0).cumsum(0).cpu().numpy()
        ids.append(int(np.searchsorted(probabilities[:-1], draw, side="right")))
    return "".join(data.alphabet[index] for index in ids[1:])
