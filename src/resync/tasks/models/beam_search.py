"""Beam search: an approximate, batched search for the most probable translations of sentences."""

import torch
from torch import Tensor

from resync.tasks.models.transformer import TransformerModel
from resync.tasks.prepare.vocabulary import BEGIN, END, PAD


@torch.no_grad()
def translate(
    model: TransformerModel, source: Tensor, beam_size: int, length_penalty: float, limits: Tensor
) -> list[list[int]]:
    """The best translation that beam search finds for each of the sources [n, S], without END.

    A translation of t tokens, including END, has the score log p / t^length_penalty (Ott et al. 2018) and at most
    `limits` [n] tokens. Every step extends the `beam_size` best hypotheses; an END among the `beam_size` best
    continuations completes a translation, and a sentence with `beam_size` translations is done. With `beam_size` 1
    this is greedy decoding.
    """
    beams = _Beams(len(source), beam_size, length_penalty, limits)
    state = model.start(source).select(torch.arange(len(source), device=source.device).repeat_interleave(beam_size))
    tokens = source.new_full((len(source) * beam_size,), BEGIN)
    while not beams.done.all():
        logits, state = model.advance(tokens, state)
        chosen = beams.extend(logits.float().log_softmax(-1))
        tokens, state = beams.tokens[..., -1].flatten(), state.select(beams.rows(chosen))
    return beams.translations()


class _Beams:
    """The hypotheses `tokens` [n, B, t] of n sentences with their log probabilities `scores` [n, B], best first.

    `best` [n, longest limit] are the best translations so far, `best_scores` [n] their scores, `found` [n] the numbers
    of translations.
    """

    def __init__(self, sentences: int, beam_size: int, length_penalty: float, limits: Tensor) -> None:
        self.length_penalty = length_penalty
        self.limits = limits
        self.scores = torch.full((sentences, beam_size), -torch.inf, device=limits.device)
        self.scores[:, 0] = 0  # the initial hypotheses are identical: only one of them counts
        self.tokens = limits.new_empty(sentences, beam_size, 0)
        self.best = limits.new_full((sentences, int(limits.max())), PAD)
        self.best_scores = torch.full_like(self.scores[:, 0], -torch.inf)
        self.found = torch.zeros_like(limits)
        self.done = torch.zeros_like(limits, dtype=torch.bool)

    def rows(self, beams: Tensor) -> Tensor:
        """The rows of the hypotheses `beams` [n, B] in the flat batch [n * B]."""
        sentences, beam_size = beams.shape
        first = torch.arange(0, sentences * beam_size, beam_size, device=beams.device)
        return (first[:, None] + beams).flatten()

    def extend(self, log_probs: Tensor) -> Tensor:
        """Extend the hypotheses by a token each, given [n * B, vocabulary]; returns their predecessors [n, B]."""
        sentences, beam_size = self.scores.shape
        length = self.tokens.shape[2] + 1
        continued = (self.scores.flatten()[:, None] + self._allowed(log_probs, length)).view(sentences, -1)
        # Each hypothesis can end in one way, which leaves the beam: twice as many candidates are enough.
        scores, places = continued.topk(2 * beam_size)
        beams, last = places // log_probs.shape[1], places % log_probs.shape[1]
        tokens = torch.cat([_pick(self.tokens, beams), last[..., None]], 2)
        ends = last == END
        self._keep_best(scores[:, :beam_size].masked_fill(~ends[:, :beam_size], -torch.inf), tokens, length)
        self.scores, kept = scores.masked_fill(ends, -torch.inf).topk(beam_size)
        self.tokens = _pick(tokens, kept)
        return beams.gather(1, kept)

    def translations(self) -> list[list[int]]:
        return [row[: row.index(END)] if END in row else row for row in self.best.tolist()]

    def _allowed(self, log_probs: Tensor, length: int) -> Tensor:
        """Exclude PAD and BEGIN, and everything except END at a sentence's limit."""
        token = torch.arange(log_probs.shape[1], device=log_probs.device)
        at_limit = (self.limits <= length).repeat_interleave(self.scores.shape[1])
        refused = (token == PAD) | (token == BEGIN) | (at_limit[:, None] & (token != END))
        return log_probs.masked_fill(refused, -torch.inf)

    def _keep_best(self, scores: Tensor, tokens: Tensor, length: int) -> None:
        """Record the translations among the first B candidates, with `scores` [n, B] that are -inf for the others."""
        best, which = (scores / length**self.length_penalty).max(1)
        better = (best > self.best_scores) & ~self.done
        self.best_scores = torch.where(better, best, self.best_scores)
        translations = _pick(tokens, which[:, None])[:, 0]
        self.best[:, :length] = torch.where(better[:, None], translations, self.best[:, :length])
        self.found += scores.isfinite().sum(1)
        self.done |= (self.found >= scores.shape[1]) | (self.limits <= length)


def _pick(tokens: Tensor, which: Tensor) -> Tensor:
    """The sequences `which` [n, c] of `tokens` [n, m, t], as [n, c, t]."""
    return tokens.gather(1, which[..., None].expand(-1, -1, tokens.shape[2]))
