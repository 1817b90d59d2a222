"""The Transformer for translation: encoder and decoder with attention, decoding with cached keys and values.

Vaswani et al. 2017, "Attention is all you need", with post-norm residual connections; the initial weights are those of
Ott et al. 2018, whose setting the papers on SGP and SlowMo use.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from resync.base.errors import UserError
from resync.tasks.models import options as declared
from resync.tasks.prepare.vocabulary import END, PAD

KeysValues = tuple[Tensor, Tensor]
"""Keys and values of all heads, each [n, heads, length, dim / heads]."""


class Attention(nn.Module):
    """Multi-head scaled dot-product attention over [n, length, dim]."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def keys_values(self, memory: Tensor) -> KeysValues:
        return self._split(self.key(memory)), self._split(self.value(memory))

    def forward(self, x: Tensor, keys_values: KeysValues, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """The output for every position of `x`; `mask` is true where a key may be attended to."""
        answers = F.scaled_dot_product_attention(
            self._split(self.query(x)), *keys_values, attn_mask=mask, is_causal=causal
        )
        return self.out(answers.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Residual(nn.Module):
    """norm(x + dropout(change)), the residual connection around each sublayer."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, change: Tensor) -> Tensor:
        return self.norm(x + self.dropout(change))


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, [n, length, dim] to the same shape."""

    def __init__(self, dim: int, heads: int, ffn_dim: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(dim, heads)
        self.after_attention = Residual(dim, dropout)
        self.ffn = nn.Sequential(nn.Linear(dim, ffn_dim), nn.ReLU(), nn.Linear(ffn_dim, dim))
        self.after_ffn = Residual(dim, dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.after_attention(x, self.attention(x, self.attention.keys_values(x), mask))
        return self.after_ffn(x, self.ffn(x))


class DecoderLayer(EncoderLayer):
    """An encoder layer with attention to the encoded source between self-attention and feed-forward network."""

    def __init__(self, dim: int, heads: int, ffn_dim: int, dropout: float) -> None:
        super().__init__(dim, heads, ffn_dim, dropout)
        self.source_attention = Attention(dim, heads)
        self.after_source = Residual(dim, dropout)

    def forward(
        self, x: Tensor, mask: Tensor, source: KeysValues | None = None, own: KeysValues | None = None
    ) -> Tensor:
        """Apply the layer to whole sentences, or to the last position, with the keys and values so far in `own`."""
        assert source is not None
        answers = self.attention(x, own or self.attention.keys_values(x), causal=own is None)
        x = self.after_attention(x, answers)
        x = self.after_source(x, self.source_attention(x, source, mask))
        return self.after_ffn(x, self.ffn(x))


@dataclass(frozen=True)
class Decoding:
    """The state of a translation in progress, on which the next token of each sentence depends.

    `mask` [n, 1, 1, S] is true at the tokens of the source; `sources` and `own` are the keys and values of every
    decoder layer, of the source and of the `length` tokens so far.
    """

    mask: Tensor
    sources: tuple[KeysValues, ...]
    own: tuple[KeysValues, ...]
    length: int = 0

    def select(self, rows: Tensor) -> "Decoding":
        def chosen(layers: tuple[KeysValues, ...]) -> tuple[KeysValues, ...]:
            return tuple((keys[rows], values[rows]) for keys, values in layers)

        return replace(self, mask=self.mask[rows], sources=chosen(self.sources), own=chosen(self.own))


class TransformerModel(nn.Module):
    """Logits [n, T, vocabulary] for sources [n, S] and decoder inputs [n, T]: token ids, padded with PAD."""

    positions: Tensor

    def __init__(self, length: int, vocabulary: int, options: declared.Transformer) -> None:
        super().__init__()
        self.dim = dim = options.dim
        self.embedding = nn.Embedding(vocabulary, dim, padding_idx=PAD)
        self.register_buffer("positions", sinusoids(length, dim), persistent=False)
        self.dropout = nn.Dropout(options.dropout)
        layer = (dim, options.heads, options.ffn_dim, options.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(*layer) for _ in range(options.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*layer) for _ in range(options.decoder_layers))
        self.apply(_initialise)

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        source, target = inputs
        mask = _mask(source)
        memory = self.encode(source)
        x = self._embed(target)
        for layer in self.decoder:
            x = layer(x, mask, layer.source_attention.keys_values(memory))
        return self._logits(x)

    def encode(self, source: Tensor) -> Tensor:
        """The encoder's output [n, S, dim]."""
        x, mask = self._embed(source), _mask(source)
        for layer in self.encoder:
            x = layer(x, mask)
        return x

    def start(self, source: Tensor) -> Decoding:
        memory = self.encode(source)
        return Decoding(
            mask=_mask(source),
            sources=tuple(layer.source_attention.keys_values(memory) for layer in self.decoder),
            own=tuple(layer.attention.keys_values(memory[:, :0]) for layer in self.decoder),
        )

    def advance(self, tokens: Tensor, state: Decoding) -> tuple[Tensor, Decoding]:
        """The logits [n, vocabulary] of the token after `tokens` [n], which follow `state`, and the new state."""
        x = self._embed(tokens[:, None], state.length)
        own = []
        for layer, source, (keys, values) in zip(self.decoder, state.sources, state.own, strict=True):
            key, value = layer.attention.keys_values(x)
            own.append((torch.cat([keys, key], 2), torch.cat([values, value], 2)))
            x = layer(x, state.mask, source, own[-1])
        return self._logits(x)[:, 0], replace(state, own=tuple(own), length=state.length + 1)

    def _embed(self, tokens: Tensor, first: int = 0) -> Tensor:
        """Embeddings of tokens and positions, [n, length, dim]; positions count from `first`."""
        places = self.positions[first : first + tokens.shape[1]]
        return self.dropout(self.embedding(tokens) * self.dim**0.5 + places)

    def _logits(self, x: Tensor) -> Tensor:
        return F.linear(x, self.embedding.weight)


def sinusoids(length: int, dim: int, longest: float = 10_000.0) -> Tensor:
    """Fixed positions [length, dim], half sines and half cosines of geometric wavelengths."""
    frequencies = longest ** -(torch.arange(dim // 2) / max(1, dim // 2 - 1))
    angles = torch.arange(length)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def _mask(source: Tensor) -> Tensor:
    return (source != PAD)[:, None, None]


@torch.no_grad()
def _initialise(module: nn.Module) -> None:
    """Xavier-uniform weights, and embeddings with an expected squared norm of 1."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        module.weight[PAD] = 0
    elif isinstance(module, Attention):
        # As if queries, keys and values were one matrix with three times the rows.
        for part in (module.query, module.key, module.value):
            nn.init.xavier_uniform_(part.weight, gain=2**-0.5)


def example(input_shape: Sequence[int], samples: int) -> tuple[Tensor, Tensor]:
    """Inputs of `samples` pairs of sentences of the greatest length."""
    tokens = torch.full((samples, *input_shape), END)
    return tokens, tokens


def build(input_shape: tuple[int, ...], num_classes: int, options: declared.Transformer) -> nn.Module:
    """A Transformer for sentences of at most `input_shape` = (length,) tokens and a vocabulary of `num_classes`."""
    if options.dim % options.heads:
        raise UserError(f"model transformer: heads {options.heads} does not divide dim {options.dim}")
    return TransformerModel(input_shape[0], num_classes, options)
