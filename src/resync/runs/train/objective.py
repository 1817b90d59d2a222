"""Training losses and metrics."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Sums = Mapping[str, Tensor]
"""Named sums over samples, in float64: `samples`, what they are divided by, and the sum of each metric."""


@dataclass(frozen=True)
class Objective(ABC):
    """The loss of a task, cross entropy, and its metrics. The forward pass is under autocast to `half`, if given."""

    label_smoothing: float = 0.0
    half: torch.dtype | None = None
    passes: int = 1
    """Forward passes of a worker in a step."""
    training_metrics: ClassVar[tuple[str, ...]] = ()
    """The names of what follows from what `training_loss` returns beside the loss."""
    summed: ClassVar[Mapping[str, Callable[[Tensor, Any], Tensor]]] = {}
    """What validation metrics are means of: the sum over the samples of a batch, from logits and targets."""

    @property
    def signatures(self) -> dict[str, str]:
        """The exact definitions of metrics that exist in several versions, by metric."""
        return {}

    @abstractmethod
    def loss(self, model: nn.Module, inputs: Any, targets: Any) -> Tensor:
        """The training loss of a forward pass; a worker's loss is the mean over the forward passes of the step."""

    def training_loss(self, model: nn.Module, inputs: Any, targets: Any) -> Tensor | tuple[Tensor, Tensor]:
        """The same loss, and from what `training_means` computes the `training_metrics` if there are any."""
        return self.loss(model, inputs, targets)

    def training_means(self, further: Tensor) -> Tensor:
        """The `training_metrics` [..., m] of steps and workers from what else their training losses returned."""
        return further

    def logits(self, model: nn.Module, inputs: Any) -> Tensor:
        """The model's output in float32: [b, classes], or [n, T, vocabulary] for text."""
        if self.half is None:
            logits: Tensor = model(inputs)
            return logits.float()
        device = (inputs if isinstance(inputs, Tensor) else inputs[0]).device
        with torch.autocast(device.type, self.half):
            return model(inputs).float()

    def samples(self, targets: Any) -> Tensor | int:
        """By what the sums of a batch are divided: its number of targets."""
        return len(targets)

    def sums(self, models: Sequence[nn.Module], data: Any, rank: int, world_size: int) -> Sums:
        """Sums over a process's validation samples, each [n] of n models; the samples are read once for all of them."""
        zeros = next(models[0].parameters()).new_zeros(len(models), dtype=torch.float64)
        totals = {name: zeros.clone() for name in (*self.summed, "samples")}
        for inputs, targets in data.validation(rank, world_size):
            for index, model in enumerate(models):
                logits = self.logits(model, inputs)
                for name, of_batch in self.summed.items():
                    totals[name][index] += of_batch(logits, targets)
            totals["samples"] += self.samples(targets)
        return totals

    def test_sums(self, model: nn.Module, data: Any, rank: int, world_size: int) -> Sums:
        """Sums over one process's test samples by metric, each [s]; none without a test."""
        return {}

    def metrics(self, sums: Sums) -> dict[str, float]:
        """The metrics from the sums over all processes, by their names in `resync.runs.metrics.registry`."""
        return {name: (sums[name] / sums["samples"]).item() for name in sums if name != "samples"}


@dataclass(frozen=True)
class Classification(Objective):
    """Cross entropy, top-1 and top-5 accuracy; the validation loss is without smoothing."""

    training_metrics = "train_top1", "train_top5"
    summed: ClassVar[Mapping[str, Callable[[Tensor, Tensor], Tensor]]] = {
        "val_loss": lambda logits, targets: F.cross_entropy(logits, targets, reduction="sum"),
        "val_top1": lambda logits, targets: 100 * _found(logits, targets)[:, 0].sum(),
        "val_top5": lambda logits, targets: 100 * _found(logits, targets).sum(),
    }

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean training loss of a batch: inputs [b, ...], targets [b], or probabilities [b, classes]."""
        return F.cross_entropy(self.logits(model, inputs), targets, label_smoothing=self.label_smoothing)

    def training_loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and which of the five most probable labels is that of a sample, [b, 5]; with several passes means.

        These are the percentages of samples whose label is the first, and among the five. For one pass they are
        computed for many steps at once: for one step of a small net that takes a tenth of its time.
        """
        logits = self.logits(model, inputs)
        loss = F.cross_entropy(logits, targets, label_smoothing=self.label_smoothing)
        found = _found(logits.detach(), targets)
        return loss, found if self.passes == 1 else _accuracies(found)

    def training_means(self, further: Tensor) -> Tensor:
        """The percentages [..., 2] from what is [..., b, 5] for one pass."""
        return _accuracies(further) if self.passes == 1 else further

    def training_losses(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """As `training_loss`, of k workers, from inputs and targets [k, b, ...] and a model with such outputs."""
        logits = self.logits(model, inputs)
        workers, samples, _ = logits.shape
        logits, targets = logits.flatten(0, 1), targets.flatten(0, 1)
        losses = F.cross_entropy(logits, targets, label_smoothing=self.label_smoothing, reduction="none")
        found = _found(logits.detach(), targets).view(workers, samples, -1)
        return losses.view(workers, samples).mean(1), found if self.passes == 1 else _accuracies(found)


def _accuracies(found: Tensor) -> Tensor:
    """Top-1 and top-5 accuracy in percent, [..., 2], of samples of which [..., b, 5] says what `_found` does."""
    among = found.sum(-2, dtype=torch.float32).cumsum(-1)  # labels among the first 1, 2, ... 5
    return among[..., :: among.shape[-1] - 1] * (100 / found.shape[-2])


def _found(logits: Tensor, targets: Tensor) -> Tensor:
    """Whether each of the five largest logits (of all, if there are fewer) is the target's, largest first [b, 5].

    Targets are labels [b], or probabilities [b, classes], of which the largest counts.
    """
    labels = targets.argmax(1) if targets.is_floating_point() else targets
    return logits.topk(min(5, logits.shape[1])).indices == labels.unsqueeze(1)
