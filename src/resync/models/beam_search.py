"""Beam search: the most probable translations of a batch of sentences, found nearly and all at once."""

import torch
from torch import Tensor

from resync.models.transformer import Transformer
from resync.prepare.vocabulary import BEGIN, END, PAD


@torch.no_grad()
def translate(
    model: Transformer, source: Tensor, beam_size: int, length_penalty: float, limits: Tensor
) -> list[list[int]]:
    """The best translation that beam search finds for each source of [n, S], without END.

    A translation of t tokens, END among them, scores log p / t^length_penalty (Ott et al. 2018) and has at most
    `limits` [n] tokens. In every step the `beam_size` best beginnings of a sentence go on; an end that is among the
    `beam_size` best continuations is a translation, and a sentence with `beam_size` translations is done. With
    `beam_size` 1 this is greedy decoding.
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
    """The beginnings `tokens` [n, B, t] of n sentences with their log probabilities `scores` [n, B], best first.

    `best` [n, longest limit] are the best translations so far, `best_scores` [n] their scores, `found` [n] how many
    there were.
    """

    def __init__(self, sentences: int, beam_size: int, length_penalty: float, limits: Tensor) -> None:
        self.length_penalty = length_penalty
        self.limits = limits
        self.scores = torch.full((sentences, beam_size), -torch.inf, device=limits.device)
        self.scores[:, 0] = 0  # all beginnings are the same: one of them counts
        self.tokens = limits.new_empty(sentences, beam_size, 0)
        self.best = limits.new_full((sentences, int(limits.max())), PAD)
        self.best_scores = torch.full_like(self.scores[:, 0], -torch.inf)
        self.found = torch.zeros_like(limits)
        self.done = torch.zeros_like(limits, dtype=torch.bool)

    def rows(self, beams: Tensor) -> Tensor:
        """Where the beginnings `beams` [n, B] stand in the flat batch [n * B]."""
        sentences, beam_size = beams.shape
        first = torch.arange(0, sentences * beam_size, beam_size, device=beams.device)
        return (first[:, None] + beams).flatten()

    def extend(self, log_probs: Tensor) -> Tensor:
        """Add a token of [n * B, vocabulary] to every beginning: which ones [n, B] the new beginnings extend."""
        sentences, beam_size = self.scores.shape
        length = self.tokens.shape[2] + 1
        continued = (self.scores.flatten()[:, None] + self._allowed(log_probs, length)).view(sentences, -1)
        # An end goes out of the beam, and each of the beginnings has one: twice as many leave enough.
        scores, places = continued.topk(2 * beam_size)
        beams, last = places // log_probs.shape[1], places % log_probs.shape[1]
        tokens = torch.cat([_pick(self.tokens, beams), last[..., None]], 2)
        ends = last == END
        self._keep_best(scores[:, :beam_size].masked_fill(~ends[:, :beam_size], -torch.inf), tokens, length)
        self.scores, kept = scores.masked_fill(ends, -torch.inf).topk(beam_size)
        self.tokens = _pick(tokens, kept)
        return beams.gather(1, kept)

    def translations(self) -> list[list[int]]:
        """The best translation of every sentence."""
        return [row[: row.index(END)] if END in row else row for row in self.best.tolist()]

    def _allowed(self, log_probs: Tensor, length: int) -> Tensor:
        """No filling or second beginning, and nothing but the end at a sentence's limit."""
        token = torch.arange(log_probs.shape[1], device=log_probs.device)
        at_limit = (self.limits <= length).repeat_interleave(self.scores.shape[1])
        refused = (token == PAD) | (token == BEGIN) | (at_limit[:, None] & (token != END))
        return log_probs.masked_fill(refused, -torch.inf)

    def _keep_best(self, scores: Tensor, tokens: Tensor, length: int) -> None:
        """Note the translations among the first B candidates: `scores` [n, B], -inf for what is none."""
        best, which = (scores / length**self.length_penalty).max(1)
        better = (best > self.best_scores) & ~self.done
        self.best_scores = torch.where(better, best, self.best_scores)
        found = _pick(tokens, which[:, None])[:, 0]
        self.best[:, :length] = torch.where(better[:, None], found, self.best[:, :length])
        self.found += scores.isfinite().sum(1)
        self.done |= (self.found >= scores.shape[1]) | (self.limits <= length)


def _pick(tokens: Tensor, which: Tensor) -> Tensor:
    """Of `tokens` [n, m, t] those that `which` [n, c] names: [n, c, t]."""
    return tokens.gather(1, which[..., None].expand(-1, -1, tokens.shape[2]))
