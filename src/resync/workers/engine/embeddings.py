"""Embeddings of tokens and places, as layers that compute all there is to compute with their parameters."""

from torch import Tensor, nn
from torch.nn import functional as F


class TiedEmbedding(nn.Embedding):
    """Vectors of token ids, [n, T] to [n, T, dim]; `logits` has the same matrix as the output layer."""

    def logits(self, vectors: Tensor) -> Tensor:
        """Scores of all tokens, [n, T, dim] to [n, T, vocabulary]."""
        return F.linear(vectors, self.weight)


class LearnedPositions(nn.Embedding):
    """Adds the vector of its place to each of at most `num_embeddings` vectors, [n, T, dim] to the same shape."""

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors + self.weight[: vectors.shape[1]]
