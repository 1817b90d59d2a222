"""Training loss and metrics of translation."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from resync.config.training import BeamSearch
from resync.data.text import Inputs, ParallelText, Targets
from resync.models.beam_search import translate
from resync.models.transformer import Transformer
from resync.prepare.vocabulary import PAD

LONGER = 50
"""Number of tokens by which a translation may be longer than its source (Vaswani et al. 2017, section 6.1)."""

LARGEST_EXPONENT = 700.0
"""Largest argument for which exp does not overflow a float."""


@dataclass(frozen=True)
class Translation:
    """Cross entropy per token, and BLEU of the test sentences if `beam_search` is given.

    A worker's loss is the sum over its tokens in the step, divided by their number; with `over_all_workers`, it is
    divided by the mean number over the workers, so that the mean of the workers' gradients is the gradient of the mean
    over all tokens of the step. The forward pass is under autocast to `half`, if given.
    """

    label_smoothing: float = 0.0
    half: torch.dtype | None = None
    over_all_workers: bool = False
    beam_search: BeamSearch | None = None

    @property
    def signatures(self) -> dict[str, str]:
        """SacreBLEU's signature."""
        return {"test_bleu": str(_corpus_bleu([""], [""])[1])} if self.beam_search else {}

    @property
    def training_metrics(self) -> tuple[str, ...]:
        """None."""
        return ()

    def loss(self, model: nn.Module, inputs: Inputs, targets: Targets) -> Tensor:
        """The loss of a bucket; see the class for its denominator."""
        logits = self.logits(model, inputs)
        total = F.cross_entropy(
            logits.flatten(0, 1),
            targets.ids.flatten(),
            ignore_index=PAD,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        return total / (targets.tokens_of_all if self.over_all_workers else targets.tokens)

    def training_loss(self, model: nn.Module, inputs: Inputs, targets: Targets) -> Tensor:
        """The loss alone."""
        return self.loss(model, inputs, targets)

    def logits(self, model: nn.Module, inputs: Inputs) -> Tensor:
        """The model's output [n, T, vocabulary] in float32."""
        with torch.autocast(inputs[0].device.type, self.half, enabled=self.half is not None):
            return model(inputs).float()

    def sums(self, models: Sequence[nn.Module], data: ParallelText, rank: int, world_size: int) -> Tensor:
        """Sum of the losses (without smoothing) and number of tokens, [n, 2]."""
        sums = next(models[0].parameters()).new_zeros(len(models), 2, dtype=torch.float64)
        for inputs, targets in data.validation(rank, world_size):
            tokens = (targets != PAD).sum().to(sums)
            for index, model in enumerate(models):
                logits = self.logits(model, inputs).flatten(0, 1)
                loss = F.cross_entropy(logits, targets.flatten(), ignore_index=PAD, reduction="sum")
                sums[index] += torch.stack([loss.to(sums), tokens])
        return sums

    def test_sums(self, model: nn.Module, data: ParallelText, rank: int, world_size: int) -> Tensor:
        """The BLEU statistics with `beam_search`: matching and total n-grams for n = 1 to 4, tokens of both sides."""
        return torch.tensor(self._bleu_statistics(model, data, rank, world_size), dtype=torch.float64)

    def metrics(self, sums: Tensor) -> dict[str, float]:
        """Validation loss (nats per token), perplexity, and BLEU (0 to 100) if its sums are given."""
        loss, tokens, *statistics = sums.tolist()
        mean = loss / tokens
        result = {"val_loss": mean, "val_perplexity": exp(mean) if mean < LARGEST_EXPONENT else inf}
        if statistics:
            from sacrebleu.metrics.bleu import BLEU

            *counts, ours, theirs = (int(count) for count in statistics)
            bleu = BLEU.compute_bleu(counts[:4], counts[4:], ours, theirs, smooth_method="exp")
            result["test_bleu"] = bleu.score
        return result

    def _bleu_statistics(self, model: nn.Module, data: ParallelText, rank: int, world_size: int) -> list[int]:
        """This process's matching and total n-grams for n = 1 to 4, and the numbers of tokens of both sides, [10]."""
        if not self.beam_search:
            return []
        translations: list[str] = []
        references: list[str] = []
        for sources, humans in data.test(rank, world_size):
            translations += [data.decode(ids) for ids in self._translated(model, sources)]
            references += humans
        if not references:
            return [0] * 10
        found, _ = _corpus_bleu(translations, references)
        return [*found.counts, *found.totals, found.sys_len, found.ref_len]

    def _translated(self, model: nn.Module, sources: Tensor) -> list[list[int]]:
        assert self.beam_search
        assert isinstance(model, Transformer)
        limits = ((sources != PAD).sum(1) + LONGER).clamp(max=len(model.positions))
        with torch.autocast(sources.device.type, self.half, enabled=self.half is not None):
            return translate(model, sources, self.beam_search.beam_size, self.beam_search.length_penalty, limits)


def _corpus_bleu(translations: list[str], references: list[str]) -> tuple[Any, str]:
    """BLEU with sacreBLEU's defaults (Post 2018), which tokenise like WMT, and its signature."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU()
    score = metric.corpus_score(translations, [references])
    return score, str(metric.get_signature())
