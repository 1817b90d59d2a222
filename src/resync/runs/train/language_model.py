"""Training loss and metrics of a language model of characters, and what it writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from resync.base.streams import stream
from resync.runs.train.objective import Objective
from resync.tasks.data.characters import Characters
from resync.workers.engine.transport import Transport


@dataclass(frozen=True)
class LanguageModel(Objective):
    """Cross entropy per character."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss over all places of a batch of windows: inputs and targets [b, T]."""
        logits = self.logits(model, inputs).flatten(0, 1)
        return F.cross_entropy(logits, targets.flatten(), label_smoothing=self.label_smoothing)

    def training_losses(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """The losses of k workers, [k], from inputs and targets [k, b, T] and a model with such outputs."""
        logits, labels = self.logits(model, inputs).flatten(0, 2), targets.flatten()
        losses = F.cross_entropy(logits, labels, label_smoothing=self.label_smoothing, reduction="none")
        return losses.view(len(targets), -1).mean(1)

    def sums(self, models: Sequence[nn.Module], data: Characters, rank: int, world_size: int) -> Tensor:
        """Sum of the losses (without smoothing) and number of characters, [n, 2]."""
        sums = next(models[0].parameters()).new_zeros(len(models), 2, dtype=torch.float64)
        for inputs, targets in data.validation(rank, world_size):
            for index, model in enumerate(models):
                sums[index, 0] += _total_loss(self.logits(model, inputs), targets)
            sums[:, 1] += targets.numel()
        return sums

    def metrics(self, sums: Tensor) -> dict[str, float]:
        loss, characters = sums.tolist()
        mean = loss / characters
        return {"val_loss": mean, "val_bits_per_character": mean / log(2)}


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


def _total_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").double()
