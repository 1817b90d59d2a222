"""GPT: a Transformer that predicts the next token of a text, in the shape of nanoGPT.

Radford et al. 2019 (GPT-2) with the choices of nanoGPT (commit 3adf61e): there are no biases, and the weights of the
two layers that write to the residual stream start smaller by the square root of their number.
"""

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from resync.base.errors import UserError
from resync.tasks.models import options as declared
from resync.workers.engine.embeddings import LearnedPositions, TiedEmbedding

INITIAL_STD = 0.02
"""Standard deviation of the initial weights (GPT-2)."""


class Attention(nn.Module):
    """Causal self-attention, [n, T, dim] to the same shape."""

    def __init__(self, options: declared.GPT) -> None:
        super().__init__()
        self.heads, self.dropout = options.heads, options.dropout
        self.qkv = nn.Linear(options.dim, 3 * options.dim, bias=False)
        self.out = nn.Linear(options.dim, options.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=2)
        )
        dropout = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout, is_causal=True)
        return self.out(attended.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Pre-norm attention and MLP, [n, T, dim] to the same shape."""

    def __init__(self, options: declared.GPT) -> None:
        super().__init__()
        dim = options.dim
        self.attention_norm = nn.LayerNorm(dim, bias=False)
        self.attention = Attention(options)
        self.mlp_norm = nn.LayerNorm(dim, bias=False)
        self.expand = nn.Linear(dim, 4 * dim, bias=False)
        self.contract = nn.Linear(4 * dim, dim, bias=False)
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.contract(F.gelu(self.expand(self.mlp_norm(x)))))


class GPTModel(nn.Module):
    """Logits [n, T, vocabulary] of the tokens that follow each of the token ids [n, T], at most `length` of them."""

    def __init__(self, length: int, vocabulary: int, options: declared.GPT) -> None:
        super().__init__()
        self.embedding = TiedEmbedding(vocabulary, options.dim)
        self.positions = LearnedPositions(length, options.dim)
        self.dropout = nn.Dropout(options.dropout)
        self.blocks = nn.Sequential(*(Block(options) for _ in range(options.layers)))
        self.norm = nn.LayerNorm(options.dim, bias=False)
        self.apply(_initialise)
        for block in self.blocks:
            for residual in (block.attention.out, block.contract):
                nn.init.normal_(residual.weight, std=INITIAL_STD / sqrt(2 * options.layers))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.dropout(self.positions(self.embedding(tokens)))
        return self.embedding.logits(self.norm(self.blocks(x)))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_STD)


def example(input_shape: Sequence[int], samples: int) -> Tensor:
    """Windows of the greatest length."""
    return torch.zeros(samples, *input_shape, dtype=torch.long)


def build(input_shape: tuple[int, ...], num_classes: int, options: declared.GPT) -> nn.Module:
    """A GPT for windows of `input_shape` = (length,) tokens of a vocabulary of `num_classes`."""
    if options.dim % options.heads:
        raise UserError(f"model gpt: heads {options.heads} does not divide dim {options.dim}")
    return GPTModel(input_shape[0], num_classes, options)
