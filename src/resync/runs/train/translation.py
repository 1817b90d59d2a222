"""Training loss and metrics of translation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import exp, inf
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from resync.runs.metrics.evaluation import BeamSearch
from resync.runs.train.objective import Objective, Sums
from resync.tasks.data.text import Inputs, ParallelText, TokenTargets
from resync.tasks.models.beam_search import translate
from resync.tasks.models.transformer import TransformerModel
from resync.tasks.prepare.vocabulary import PAD

if TYPE_CHECKING:
    from resync.runs.train.bleu import Bleu

LONGER = 50
"""Number of tokens by which a translation may be longer than its source (Vaswani et al. 2017, section 6.1)."""

LARGEST_EXPONENT = 700.0
"""Largest argument for which exp does not overflow a float."""


@dataclass(frozen=True)
class Translation(Objective):
    """Cross entropy per token, and BLEU of the test sentences in `language` if `beam_search` is given.

    A worker's loss is the sum over its tokens in the step, divided by their number; with `over_all_workers`, it is
    divided by the mean number over the workers, so that the mean of the workers' gradients is the gradient of the mean
    over all tokens of the step.
    """

    training_metrics = ("train_nll",)
    summed: ClassVar[Mapping[str, Callable[[Tensor, Tensor], Tensor]]] = {
        "val_loss": lambda logits, targets: F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum"
        )
    }
    over_all_workers: bool = False
    beam_search: BeamSearch | None = None
    language: str = "de"

    @property
    def signatures(self) -> dict[str, str]:
        return {name: form.signature for name, form in self._bleu.items()}

    def loss(self, model: nn.Module, inputs: Inputs, targets: TokenTargets) -> Tensor:
        """The loss of a bucket; see the class for its denominator."""
        return self._per_token(self.logits(model, inputs), targets, self.label_smoothing)

    def training_loss(self, model: nn.Module, inputs: Inputs, targets: TokenTargets) -> tuple[Tensor, Tensor]:
        """The same, and the negative log-likelihood per token, which is the loss without smoothing."""
        logits = self.logits(model, inputs)
        loss = self._per_token(logits, targets, self.label_smoothing)
        likelihood = self._per_token(logits.detach(), targets, 0.0) if self.label_smoothing else loss.detach()
        return loss, likelihood.unsqueeze(0)

    def _per_token(self, logits: Tensor, targets: TokenTargets, smoothing: float) -> Tensor:
        total = F.cross_entropy(
            logits.flatten(0, 1),
            targets.ids.flatten(),
            ignore_index=PAD,
            reduction="sum",
            label_smoothing=smoothing,
        )
        return total / (targets.tokens_of_all if self.over_all_workers else targets.tokens)

    def samples(self, targets: Tensor) -> Tensor:
        """The number of tokens."""
        return (targets != PAD).sum()

    def test_sums(self, model: nn.Module, data: ParallelText, rank: int, world_size: int) -> Sums:
        """For each form of BLEU, with `beam_search`, its statistics of this process's test sentences, [10]."""
        if not self.beam_search:
            return {}
        translations: list[str] = []
        references: list[str] = []
        for sources, humans in data.test(rank, world_size):
            translations += [data.decode(ids) for ids in self._translate(model, sources)]
            references += humans
        return {
            name: torch.tensor(form.statistics(translations, references), dtype=torch.float64)
            for name, form in self._bleu.items()
        }

    def metrics(self, sums: Sums) -> dict[str, float]:
        """Validation loss (nats per token), perplexity, and the forms of BLEU (0 to 100) if their sums are given."""
        bleu = {name: form.score(sums[name].long().tolist()) for name, form in self._bleu.items() if name in sums}
        metrics = super().metrics({name: total for name, total in sums.items() if name not in bleu})
        mean = metrics["val_loss"]
        return metrics | {"val_perplexity": exp(mean) if mean < LARGEST_EXPONENT else inf} | bleu

    @cached_property
    def _bleu(self) -> dict[str, Bleu]:
        if not self.beam_search:
            return {}
        # The packages that it needs take time to import, and nothing else needs them.
        from resync.runs.train.bleu import forms

        return forms(self.language)

    def _translate(self, model: nn.Module, sources: Tensor) -> list[list[int]]:
        assert self.beam_search
        assert isinstance(model, TransformerModel)
        limits = ((sources != PAD).sum(1) + LONGER).clamp(max=len(model.positions))
        with torch.autocast(sources.device.type, self.half, enabled=self.half is not None):
            return translate(model, sources, self.beam_search.beam_size, self.beam_search.length_penalty, limits)
