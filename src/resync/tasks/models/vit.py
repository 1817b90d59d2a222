"""SimpleViT: a plain vision transformer without class token, dropout or learned positions.

After Beyer, Zhai, Kolesnikov 2022, "Better plain ViT baselines for ImageNet-1k", in the form that the QSR paper trains
as ViT-B/16 (vit-pytorch 1.2.8): the tokens are averaged first, and their mean is normalised. Beyer et al., and
vit-pytorch from August 2023 on, normalise the tokens before the mean.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from resync.base.errors import UserError
from resync.tasks.models.options import ViT


class Block(nn.Module):
    """Pre-norm self-attention and MLP, [batch, tokens, dim] to the same shape."""

    def __init__(self, dim: int, heads: int, mlp_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, mlp_dim), nn.GELU(), nn.Linear(mlp_dim, dim))

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length, dim = tokens.shape
        qkv = self.qkv(self.norm(tokens)).view(batch, length, 3, self.heads, dim // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.out(attended.transpose(1, 2).reshape(batch, length, dim))
        return tokens + self.mlp(tokens)


class SimpleViT(nn.Module):
    """Logits [batch, num_classes] for images [batch, channels, height, width]."""

    positions: Tensor

    def __init__(self, shape: tuple[int, ...], num_classes: int, options: ViT) -> None:
        super().__init__()
        channels, height, width = shape
        patch, dim = options.patch, options.dim
        patch_values = channels * patch * patch
        self.patch = patch
        self.embed = nn.Sequential(nn.LayerNorm(patch_values), nn.Linear(patch_values, dim), nn.LayerNorm(dim))
        self.register_buffer("positions", sincos_positions(height // patch, width // patch, dim), persistent=False)
        blocks = (Block(dim, options.heads, options.mlp_dim) for _ in range(options.depth))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        patches = F.unfold(images, self.patch, stride=self.patch).transpose(1, 2)
        tokens = self.blocks(self.embed(patches) + self.positions)
        return self.head(self.norm(tokens.mean(dim=1)))


def sincos_positions(rows: int, columns: int, dim: int, temperature: float = 10_000.0) -> Tensor:
    """Fixed 2-d positions [rows * columns, dim]: a quarter each of sin and cos of the column and of the row."""
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    frequencies = temperature ** -(torch.arange(dim // 4) / (dim // 4 - 1 if dim > 4 else 1))
    angles = [axis.flatten()[:, None] * frequencies for axis in (x, y)]
    return torch.cat([function(angle) for angle in angles for function in (torch.sin, torch.cos)], dim=1)


def build(input_shape: tuple[int, ...], num_classes: int, options: ViT) -> nn.Module:
    """SimpleViT for the given images."""
    patch, dim, heads = options.patch, options.dim, options.heads
    if input_shape[1] % patch or input_shape[2] % patch:
        raise UserError(f"model vit: patch {patch} does not divide the image of {input_shape[1]}x{input_shape[2]}")
    if dim % heads:
        raise UserError(f"model vit: heads {heads} does not divide dim {dim}")
    return SimpleViT(input_shape, num_classes, options)
